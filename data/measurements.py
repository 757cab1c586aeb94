"""Measured results of queries, as columns, for fitting and evaluating predictors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query

NO_HOST: Final = "none"
"""Value of the group `host` for recorded runs, such as CUDA graphs: they do not wait for a host,
and their latency is the device time."""


@dataclass(frozen=True)
class Measurements:
    """n queries with their measured values.

    Attributes:
        queries: n queries.
        values: metric name -> n values; NaN where not measured.
        groups: grouping keys -> n strings (`device`, `model`, `family`, `task`, ...): for splits,
            calibration and reports. They are never features.
        weights: n positive weights, 1 by default; smaller for rows flagged as doubtful.
    """

    queries: Sequence[Query]
    values: Mapping[str, NDArray[np.float64]]
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(
        cls,
        queries: Sequence[Query],
        values: Mapping[str, Any],
        groups: Mapping[str, Any],
    ) -> "Measurements":
        """Measurements from columns of any kind; the group `device` comes from the queries."""
        texts = {"device": [query.device.name for query in queries], **groups}
        return cls(
            queries,
            {name: np.asarray(column, dtype=np.float64) for name, column in values.items()},
            {name: np.array([*map(str, column)], dtype=np.str_) for name, column in texts.items()},
        )

    def __len__(self) -> int:
        return len(self.queries)

    def __add__(self, other: "Measurements") -> "Measurements":
        """The rows of both, in order; a column that one side lacks is NaN for its rows."""
        n, m = len(self), len(other)
        values = {
            name: np.concatenate([self.column(name), other.column(name)])
            for name in {**self.values, **other.values}
        }
        groups = {
            name: np.concatenate(
                [self.groups.get(name, np.full(n, "")), other.groups.get(name, np.full(m, ""))]
            )
            for name in {**self.groups, **other.groups}
        }
        weights = None
        if self.weights is not None or other.weights is not None:
            weights = np.concatenate([_weights(self), _weights(other)])
        return Measurements([*self.queries, *other.queries], values, groups, weights)

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

    def column(self, name: str) -> NDArray[np.float64]:
        """Values of one metric, shape (n,); NaN if not measured."""
        return self.values.get(name, np.full(len(self), np.nan))

    def group(self, key: str) -> NDArray[np.str_]:
        """Values of a grouping key, shape (n,); without that key each row is its own group."""
        return self.groups.get(key, np.arange(len(self)).astype(np.str_))


def _weights(rows: Measurements) -> NDArray[np.float64]:
    return np.ones(len(rows)) if rows.weights is None else rows.weights
