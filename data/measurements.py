"""Measured outcomes of queries, as columns: what predictors are fitted and judged on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query


@dataclass(frozen=True)
class Measurements:
    """n queries with what was measured.

    Attributes:
        queries: n questions.
        values: metric name -> n values; NaN where not measured.
        groups: grouping keys -> n strings (`device`, `model`, `family`, `task`, ...): for splits,
            calibration and reports. They are never features.
        weights: n positive weights, 1 by default; smaller for rows flagged as doubtful.
    """

    queries: Sequence[Query]
    values: Mapping[str, NDArray[np.float64]]
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: Iterable[int] | NDArray[np.intp] | NDArray[np.bool_]) -> "Measurements":
        """The rows at these positions, or where the mask is True."""
        index = np.asarray(rows)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        return Measurements(
            queries=[self.queries[int(i)] for i in index],
            values={k: v[index] for k, v in self.values.items()},
            groups={k: v[index] for k, v in self.groups.items()},
            weights=None if self.weights is None else self.weights[index],
        )
