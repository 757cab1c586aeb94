"""Memory with ranges calibrated on published set-ups: split conformal prediction by group.

`Memory` answers from an analytic plan, and its ranges were calibrated on one kind of network on one
GPU. Here the residuals log(measured / predicted) of set-ups that others published, whole tables at
a time, give the ranges of everything else. A table is one group: its rows share a script, a network
and a framework, so that each counts as one sample of what a new table would show (hierarchical
conformal prediction, Lee, Barber and Willett 2023, arXiv 2306.06342).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.artifact import load_part, read_content, write_content
from forerun.models.memory import Memory
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
COVERAGE = 0.9
FEWEST_GROUPS = 3
"""Groups of a phase from which on ranges are calibrated; with fewer those of `Memory` stay."""


@dataclass(frozen=True)
class CalibratedMemory:
    """`Memory`'s answers in ranges that held other groups of published set-ups.

    Attributes:
        base: answers values, limits and breakdowns.
        bounds: phase -> lower and upper log(measured / predicted), of either metric of memory.
        name: in artifacts.
    """

    base: Memory = field(default_factory=Memory)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    name: ClassVar[str] = "calibrated_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of `Memory`."""
        return self.base.metrics

    def answers(self, query: Query) -> bool:
        """Whether `Memory` does."""
        return self.base.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Ranges by phase from rows with any metric of memory; `base` stays as it is.

        Group `part` says which rows belong together; without it every row is a group.
        """
        left, phases = self._residuals(measurements)
        groups = measurements.groups.get("part", np.arange(len(left)).astype(np.str_))
        bounds = {}
        for phase in ("training", "inference"):
            rows = (phases == phase) & ~np.isnan(left)
            if len(np.unique(groups[rows])) >= FEWEST_GROUPS:
                bounds[phase] = group_bounds(left[rows], groups[rows])
        return replace(self, bounds=bounds)

    def adapt(self, measurements: Measurements) -> Self:
        """`base` adapted to a device; ranges stay."""
        return replace(self, base=self.base.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """`Memory`'s answers; ranges from `bounds` for what `Memory` was not calibrated on."""
        found = self.base.predict(queries)
        phases = [_phase(query) for query in queries]
        taken = np.array([phase in self.bounds for phase in phases], dtype=np.bool_)
        if not taken.any():
            return found
        low_log, high_log = np.array([self.bounds.get(phase, (0.0, 0.0)) for phase in phases]).T
        low, high = dict(found.low), dict(found.high)
        for metric in self.metrics:
            value = found.values[metric]
            low[metric] = np.where(taken, value * np.exp(low_log), low[metric])
            high[metric] = np.where(taken, value * np.exp(high_log), high[metric])
        coverage = COVERAGE if taken.all() else None
        return replace(found, low=low, high=high, coverage=coverage)

    def save(self, folder: Path) -> None:
        """`base` in a folder of its own, bounds as JSON."""
        bounds = {phase: list(pair) for phase, pair in self.bounds.items()}
        write_content(folder, self.name, {"bounds": bounds})
        self.base.save(folder / self.base.name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or holds another predictor.
        """
        content = read_content(folder, cls.name)
        base = load_part(folder / Memory.name)
        assert isinstance(base, Memory)
        bounds = {phase: (float(b[0]), float(b[1])) for phase, b in content["bounds"].items()}
        return cls(base, bounds)

    def _residuals(self, measurements: Measurements) -> tuple[Column, NDArray[np.str_]]:
        """log(measured / predicted) of n rows, NaN where none was measured, and their phases."""
        answered = self.base.predict(measurements.queries) if len(measurements) else None
        left = np.full(len(measurements), np.nan)
        for metric in self.metrics:
            measured = measurements.values.get(metric)
            if answered is not None and measured is not None:
                ratio = np.log(measured / answered.values[metric])
                left = np.where(np.isnan(ratio), left, ratio)
        phases = [_phase(query) for query in measurements.queries]
        return left, np.array(phases, dtype=np.str_)


def group_bounds(residuals: Column, groups: NDArray[np.str_]) -> tuple[float, float]:
    """Bounds that hold a row of a new group with probability `COVERAGE`, as far as groups allow.

    Every group weighs the same however many rows it has. With k groups a quantile above k / (k + 1)
    is not known; the greatest residual takes its place.

    Args:
        residuals: n values without NaN.
        groups: of each row.

    Returns:
        Lower bound, at most 0, and upper bound, at least 0, of log(measured / predicted).
    """
    names, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    weights = 1.0 / count[place]
    level = (1.0 - (1.0 - COVERAGE) / 2.0) * (len(names) + 1)
    high = _upper(residuals, weights, level)
    return min(0.0, -_upper(-residuals, weights, level)), max(0.0, high)


def _upper(residuals: Column, weights: Column, level: float) -> float:
    """Least residual whose weight together with those below reaches `level`; else the greatest."""
    order = np.argsort(residuals)
    reached = np.flatnonzero(np.cumsum(weights[order]) >= level - 1e-9)
    return float(residuals[order][reached[0] if len(reached) else -1])


def _phase(query: Query) -> str:
    assert isinstance(query.workload, Network)
    return query.workload.phase
