"""What measured runs of like machines show beyond a fit: its errors near them.

Errors are smoothed over the logarithms of threads and of the model's parameters, among runs with
cores of one microarchitecture on one memory node, or on several. They do not depend on how many
cores there are but on the threads that run, nor on bandwidth, bits, requests in flight or lengths,
so that what the fit says of these holds with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, Names, rows_by
from forerun.data.query import Query
from forerun.features.llm_serving.processors import machine_of, sizes_of

WIDTH: Final = 0.35
"""Deviation of the kernel, in powers of two of threads and of parameters."""
PRIOR: Final = 0.5
"""Weight of no error against those of runs."""
MOST_WEIGHT: Final = 5.0
"""Weight of a cell at most, in runs: near copies tell no more."""
LARGEST: Final = 1.5
"""Log error that counts at most."""


@dataclass(frozen=True, slots=True)
class Places(Columns):
    """Where n runs stand.

    Attributes:
        kinds: (n,) microarchitecture, and whether memory nodes are several.
        logs: (n, 2) powers of two of threads and of parameters.
    """

    kinds: Names
    logs: Matrix

    @classmethod
    def of(cls, queries: Sequence[Query], threads: Sequence[float]) -> Self:
        """Of n deployments, each at a number of threads."""
        kinds = []
        for query in queries:
            several = machine_of(query).nodes > 1.0
            kinds.append(f"{query.device.architecture}{', several nodes' if several else ''}")
        sizes = [sizes_of(query.deployment.model).parameters for query in queries]
        return cls(np.array(kinds), np.log2(np.column_stack([threads, sizes])))


@dataclass(frozen=True)
class NearbyRuns:
    """Log errors of a fit near runs.

    Attributes:
        cells: kind -> powers of two of threads and parameters, log error, weight.
    """

    cells: Mapping[str, tuple[tuple[float, float, float, float], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Places, errors: Column) -> Self:
        """Of n runs with log errors, (n,); medians of those in half powers of two of threads."""
        steps = np.column_stack([np.round(2.0 * places.logs[:, 0]) / 2.0, places.logs[:, 1]])
        keys = [(kind, *at) for kind, at in zip(places.kinds.tolist(), steps.tolist(), strict=True)]
        found: dict[str, list[tuple[float, float, float, float]]] = {}
        for (kind, threads, parameters), rows in rows_by(keys).items():
            error = float(np.clip(np.median(errors[rows]), -LARGEST, LARGEST))
            cell = (threads, round(parameters, 3), round(error, 4), min(len(rows), MOST_WEIGHT))
            found.setdefault(kind, []).append(cell)
        return cls({kind: tuple(own) for kind, own in found.items()})

    def at(self, places: Places) -> Column:
        """Log errors to expect, (n,); 0 far from all runs."""
        errors = np.zeros(len(places.kinds))
        for kind, rows in rows_by(places.kinds.tolist()).items():
            if kind in self.cells:
                *at, error, weight = np.array(self.cells[kind]).T
                away = places.logs[rows][:, None] - np.column_stack(at)[None]
                near = weight * np.exp(-0.5 * (away / WIDTH) ** 2).prod(axis=2)
                errors[rows] = near @ error / (near.sum(axis=1) + PRIOR)
        return errors
