"""Memory with ranges calibrated on published set-ups: conformal prediction by group.

`Memory` answers from an analytic plan, and its ranges were calibrated on one kind of network on one
GPU. Here the residuals |log(measured / predicted)| of set-ups that others published, whole tables
at a time, give one width for everything else. A table is one group: its rows share a script, a
network and a framework, so that each counts as one sample of what a new table would show
(hierarchical conformal prediction, Lee, Barber and Willett 2023, arXiv 2306.06342). Tables are few
and deviate to one side each, so that a new one may deviate to either: the range is symmetric in the
logarithm.
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
ONE, SEVERAL = "one", "several"
FEWEST_GROUPS = 4
"""Groups from which on ranges are calibrated; with fewer those of `Memory` stay."""


@dataclass(frozen=True)
class CalibratedMemory:
    """`Memory`'s answers in ranges that held other groups of published set-ups.

    Attributes:
        base: answers values, limits and breakdowns.
        widths: `one` or `several` devices -> |log(measured / predicted)| that the range holds, of
            every metric of memory; empty before `fit`.
        name: in artifacts.
    """

    base: Memory = field(default_factory=Memory)
    widths: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "calibrated_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of `Memory`."""
        return self.base.metrics

    def answers(self, query: Query) -> bool:
        """Whether `Memory` does."""
        return self.base.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Widths from rows with any metric of memory; `base` stays as it is.

        Group `part` says which rows belong together; without it every row is a group. How a network
        is divided among devices is a further source of error, so that runs on one device are
        calibrated on their like, and runs on several on all.
        """
        left = self._residuals(measurements)
        groups = measurements.groups.get("part", np.arange(len(left)).astype(np.str_))
        alone = np.array([_devices(q) == ONE for q in measurements.queries], dtype=np.bool_)
        known, widths = ~np.isnan(left), {}
        for devices, rows in ((ONE, known & alone), (SEVERAL, known)):
            if len(np.unique(groups[rows])) >= FEWEST_GROUPS:
                widths[devices] = group_width(left[rows], groups[rows])
        return replace(self, widths=widths)

    def adapt(self, measurements: Measurements) -> Self:
        """`base` adapted to a device; widths stay."""
        return replace(self, base=self.base.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """`Memory`'s answers, in ranges of `widths` where they are calibrated."""
        found = self.base.predict(queries)
        width = np.array([self.widths.get(_devices(q), np.nan) for q in queries])
        known, factor = np.isfinite(width), np.exp(width)
        if not known.any():
            return found
        low, high = dict(found.low), dict(found.high)
        for metric in self.metrics:
            value = found.values[metric]
            low[metric] = np.where(known, value / factor, low[metric])
            high[metric] = np.where(known, value * factor, high[metric])
        return replace(found, low=low, high=high, coverage=COVERAGE if known.all() else None)

    def save(self, folder: Path) -> None:
        """`base` in a folder of its own, widths as JSON."""
        write_content(folder, self.name, {"widths": dict(self.widths)})
        self.base.save(folder / self.base.name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or holds another predictor.
        """
        widths = read_content(folder, cls.name)["widths"]
        base = load_part(folder / Memory.name)
        assert isinstance(base, Memory)
        return cls(base, {devices: float(width) for devices, width in widths.items()})

    def _residuals(self, measurements: Measurements) -> Column:
        """|log(measured / predicted)| of n rows, NaN where no metric was measured."""
        left = np.full(len(measurements), np.nan)
        if not len(measurements):
            return left
        answered = self.base.predict(measurements.queries)
        for metric in self.metrics:
            measured = measurements.values.get(metric)
            if measured is not None:
                ratio = np.abs(np.log(measured / answered.values[metric]))
                left = np.where(np.isnan(ratio), left, ratio)
        return left


def group_width(residuals: Column, groups: NDArray[np.str_]) -> float:
    """Width that holds `COVERAGE` of the rows of a new group, as far as groups allow.

    Every group weighs the same however many rows it has. With k groups a quantile above k / (k + 1)
    is not known; the greatest residual takes its place.

    Args:
        residuals: n absolute values without NaN.
        groups: of each row.
    """
    names, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(residuals)
    weights = np.cumsum((1.0 / count[place])[order])
    reached = np.flatnonzero(weights >= COVERAGE * (len(names) + 1) - 1e-9)
    return float(residuals[order][reached[0] if len(reached) else -1])


def _devices(query: Query) -> str:
    assert isinstance(query.workload, Network)
    setup = query.workload.training
    if setup is None:
        return ONE
    shared = setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
    return ONE if shared == 1 else SEVERAL
