"""Kernel smoother of a fit's residuals on measured runs of similar machines.

Residuals are smoothed over the logarithms of the thread count, of the model's parameters and of the
concurrency, among runs on cores of one microarchitecture, with one memory node or with several.
They do not depend on core count, bandwidth, bits per weight or lengths, so the fit's monotonicity
in these is preserved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, Names, rows_by
from forerun.data.query import Query
from forerun.features.llm_serving.processors import in_flight, machine_of, sizes_of

WIDTHS: Final = (0.35, 0.35, 1.0)
"""Standard deviations of the Gaussian kernel, in log2 of threads, parameters and concurrency. With
0.7 of the last, some times per token fall with concurrency."""
PRIOR: Final = 0.5
"""Weight of the prior of zero error, in runs."""
MOST_WEIGHT: Final = 5.0
"""Largest weight of a cell, in runs: near-duplicates add no information."""
LARGEST: Final = 1.5
"""Log errors are clipped to this magnitude."""


@dataclass(frozen=True, slots=True)
class Places(Columns):
    """Coordinates of n runs in the smoother.

    Attributes:
        kinds: (n,) microarchitecture, and whether there are several memory nodes.
        logs: (n, 3) log2 of threads, of parameters and of concurrency.
    """

    kinds: Names
    logs: Matrix

    @classmethod
    def of(cls, queries: Sequence[Query], threads: Sequence[float]) -> Self:
        """Coordinates of n deployments, each at a number of threads."""
        kinds = []
        for query in queries:
            several = machine_of(query).nodes > 1.0
            kinds.append(f"{query.device.architecture}{', several nodes' if several else ''}")
        sizes = [sizes_of(query.deployment.model).parameters for query in queries]
        number = [*map(in_flight, queries)]
        return cls(np.array(kinds), np.log2(np.column_stack([threads, sizes, number])))


@dataclass(frozen=True)
class NearbyRuns:
    """Smoothed log errors of a fit.

    Attributes:
        cells: kind -> cells of log2 of threads, parameters and concurrency, log error and weight.
    """

    cells: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Places, errors: Column) -> Self:
        """Bin n runs in steps of 0.5 in all logarithms; a cell has the median log error, (n,)."""
        steps = np.round(2.0 * places.logs) / 2.0
        keys = [(kind, *at) for kind, at in zip(places.kinds.tolist(), steps.tolist(), strict=True)]
        cells: dict[str, list[tuple[float, ...]]] = {}
        for (kind, *at), rows in rows_by(keys).items():
            error = float(np.clip(np.median(errors[rows]), -LARGEST, LARGEST))
            cell = (*at, round(error, 4), min(len(rows), MOST_WEIGHT))
            cells.setdefault(kind, []).append(cell)
        return cls({kind: tuple(of_kind) for kind, of_kind in cells.items()})

    def at(self, places: Places) -> Column:
        """Expected log errors, (n,); 0 far from all runs."""
        errors = np.zeros(len(places.kinds))
        for kind, rows in rows_by(places.kinds.tolist()).items():
            if kind in self.cells:
                *at, error, weight = np.array(self.cells[kind]).T
                distance = places.logs[rows][:, None] - np.column_stack(at)[None]
                weights = weight * np.exp(-0.5 * (distance / WIDTHS) ** 2).prod(axis=2)
                errors[rows] = weights @ error / (weights.sum(axis=1) + PRIOR)
        return errors
