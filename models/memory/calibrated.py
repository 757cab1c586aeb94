"""Peak memory with ranges calibrated on published set-ups where `Memory` has none of its own.

`Memory` answers from an analytic plan. Its ranges were calibrated on training of perceptrons and of
vision networks on one GPU; where those runs speak for a question, they stay. Everywhere else ranges
come from set-ups that others published (`forerun.models.memory.published_ranges`). Coverage is
claimed where published set-ups of such a network, with such options and of such a size, measured
the metric; where none did, the range is the wider one of the two and makes no claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.memory.plan import MemoryPlan
from forerun.models.artifact.sealed_folder import load_part, read_content, write_content
from forerun.models.memory.domain import concerning
from forerun.models.memory.peak_memory import (
    ENGINEERING,
    PEAK,
    REFUSAL,
    RESERVED,
    Memory,
    plan_of,
    refusals,
)
from forerun.models.memory.published_ranges import COVERAGE, PublishedRanges, stratum_of
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
CONTEXT = "; what the device takes beside the allocator is an engineering range"


@dataclass(frozen=True)
class CalibratedMemory:
    """`Memory`'s answers, in ranges of published set-ups where its own are not calibrated.

    Attributes:
        base: answers values, breakdowns, and the ranges of its own domain.
        ranges: of published set-ups; without widths before `fit`.
        name: in artifacts.
    """

    base: Memory = field(default_factory=Memory)
    ranges: PublishedRanges = field(default_factory=PublishedRanges)
    name: ClassVar[str] = "calibrated_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of `Memory`."""
        return self.base.metrics

    def answers(self, query: Query) -> bool:
        """Whether `Memory` does."""
        return self.base.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Ranges from published rows with any metric of memory; `base` stays as it is."""
        if not len(measurements):
            return replace(self, ranges=PublishedRanges())
        plans = [plan_of(query) for query in measurements.queries]
        answered = self.base.predict_planned(measurements.queries, plans)
        residuals = {
            metric: np.log(measurements.values[metric] / answered.values[metric])
            for metric in self.metrics
            if metric in measurements.values
        }
        return replace(self, ranges=PublishedRanges.of(measurements, residuals, plans))

    def adapt(self, measurements: Measurements) -> Self:
        """`base` adapted to a device; published ranges stay."""
        return replace(self, base=self.base.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """`Memory`'s answers; ranges outside its domain are those of published set-ups."""
        plans = [plan_of(query) for query in queries]
        found = self.base.predict_planned(queries, plans)
        if not self.ranges.widths:
            return found
        low = {metric: column.copy() for metric, column in found.low.items()}
        high = {metric: column.copy() for metric, column in found.high.items()}
        share = {metric: np.full(len(queries), np.nan) for metric in self.metrics}
        share[PEAK] = found.row_coverage[PEAK].copy()
        limits = list(found.limits)
        for row in np.flatnonzero(np.isnan(share[PEAK])).tolist():
            query, plan = concerning(queries[row]), plans[row]
            why = self.ranges.why_silent(query, plan)
            for metric, (least, most) in self._range(query, plan, found, row).items():
                if why is not None:
                    least = min(least, found.low[metric][row])
                    most = max(most, found.high[metric][row])
                elif metric in self._measured(query):
                    share[metric][row] = COVERAGE
                low[metric][row], high[metric][row] = least, most
            limits[row] = self._limits(query, why, low[PEAK][row], found.limits[row])
        coverage = {name: None if np.isnan(own).any() else COVERAGE for name, own in share.items()}
        return replace(
            found, low=low, high=high, limits=limits, coverage=coverage, row_coverage=share
        )

    def save(self, folder: Path) -> None:
        """`base` in a folder of its own, ranges as JSON."""
        write_content(folder, self.name, {"ranges": self.ranges.to_json()})
        self.base.save(folder / self.base.name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or holds another predictor.
        """
        ranges = PublishedRanges.from_json(read_content(folder, cls.name)["ranges"])
        base = load_part(folder / Memory.name)
        assert isinstance(base, Memory)
        return cls(base, ranges)

    def _measured(self, query: Query) -> tuple[str, ...]:
        return self.ranges.metrics.get(stratum_of(query), ())

    def _range(
        self, query: Query, plan: MemoryPlan, found: Predictions, row: int
    ) -> Mapping[str, tuple[float, float]]:
        """Metric -> range of published set-ups.

        In inference nobody published what a device takes beside the allocator, so that the range of
        the peak has room for that of `Memory` as well.
        """
        factor = float(np.exp(self.ranges.widths[stratum_of(query)]))
        values = {metric: float(found.values[metric][row]) for metric in self.metrics}
        ranges = {metric: (value / factor, value * factor) for metric, value in values.items()}
        if stratum_of(query) == "inference" and PEAK not in self._measured(query):
            reserved, (least, most) = values[RESERVED], ranges[PEAK]
            own_least, own_most = self.base.own_range(query, values[PEAK] - plan.reserved)
            least = min(least, reserved / factor + own_least)
            ranges[PEAK] = (least, max(most, reserved * factor + own_most))
        return ranges

    def _limits(
        self, query: Query, why: str | None, least_mib: float, before: Sequence[str]
    ) -> tuple[str, ...]:
        line = self.ranges.line(query, why)
        if why is None and PEAK not in self._measured(query):
            line += CONTEXT
        kept = [one for one in before if not one.startswith((ENGINEERING, REFUSAL))]
        return (*refusals(query, least_mib), line, *kept)
