"""Peak memory with intervals calibrated on published set-ups outside the domain of `Memory`.

`Memory` predicts from an analytic plan, with intervals calibrated on training of perceptrons and
vision networks on one GPU. They are kept for queries in that domain. For all other queries the
intervals come from set-ups that others published (`forerun.models.memory.published_ranges`). They
have a nominal coverage where the metric was measured in published set-ups of the same kind of
network, with the same options and of a similar size. Otherwise the interval is the union of both
and has no nominal coverage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.memory.plan import MemoryPlan
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.estimator import SETTING
from forerun.models.limit import Limit
from forerun.models.memory.domain import assumptions, concerning, inert_notes
from forerun.models.memory.peak_memory import PEAK, RESERVED, Memory, plans_of, refusals
from forerun.models.memory.published_ranges import PublishedRanges, stratum_of
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor

CONTEXT = "; what the device takes outside the allocator is an engineering range"


@dataclass(frozen=True)
class CalibratedMemory(StoredPredictor):
    """`Memory` with intervals from published set-ups where its own are not calibrated.

    Attributes:
        base: predictor of values and breakdowns, and of intervals in its own domain.
        ranges: intervals from published set-ups; without widths before `fit`.
        name: name in artifacts.
    """

    base: Memory = field(default_factory=Memory, metadata=SETTING)
    ranges: PublishedRanges = field(default_factory=PublishedRanges)
    name: ClassVar[str] = "calibrated_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of `Memory`."""
        return self.base.metrics

    def answers(self, query: Query) -> bool:
        """Whether `base` answers the query."""
        return self.base.answers(query)

    def with_parts(self, parts: Mapping[str, Predictor]) -> Self:
        """The predictor around this predictor of values; its ranges are kept."""
        base = parts[Memory.name]
        assert isinstance(base, Memory)
        return replace(self, base=base)

    def fit(self, measurements: Measurements) -> Self:
        """Calibrate the intervals on published rows; `base` is not changed.

        Args:
            measurements: rows with at least one of the metrics, and the groups of
                `PublishedRanges.of`.
        """
        if not len(measurements):
            return replace(self, ranges=PublishedRanges())
        plans = plans_of(measurements.queries)
        answered = self.base.predict_planned(measurements.queries, plans)
        residuals = {
            metric: np.log(measurements.values[metric] / answered.values[metric])
            for metric in self.metrics
            if metric in measurements.values
        }
        return replace(self, ranges=PublishedRanges.of(measurements, residuals, plans))

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt `base` to a device; the intervals from published set-ups are not changed."""
        return replace(self, base=self.base.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions of `base`, with intervals from published set-ups outside its domain."""
        plans = plans_of(queries)
        base = self.base.predict_planned(queries, plans)
        if not self.ranges.widths:
            return base
        low = {metric: column.copy() for metric, column in base.low.items()}
        high = {metric: column.copy() for metric, column in base.high.items()}
        share = {metric: np.full(len(queries), np.nan) for metric in self.metrics}
        share[PEAK] = base.row_coverage[PEAK].copy()
        limits = list(base.limits)
        for row in np.flatnonzero(np.isnan(share[PEAK])).tolist():
            query, plan = concerning(queries[row]), plans[row]
            why = self.ranges.why_silent(query, plan)
            for metric, (least, most) in self._range(query, plan, base, row).items():
                if why is not None:
                    least = min(least, base.low[metric][row])
                    most = max(most, base.high[metric][row])
                elif metric in self._measured(query):
                    share[metric][row] = LEVEL
                low[metric][row], high[metric][row] = least, most
            limits[row] = (*self._limits(query, why, low[PEAK][row]), *inert_notes(queries[row]))
        coverage = {name: None if np.isnan(own).any() else LEVEL for name, own in share.items()}
        return replace(
            base, low=low, high=high, limits=limits, coverage=coverage, row_coverage=share
        )

    def _measured(self, query: Query) -> tuple[str, ...]:
        return self.ranges.metrics.get(stratum_of(query), ())

    def _range(
        self, query: Query, plan: MemoryPlan, base: Predictions, row: int
    ) -> Mapping[str, tuple[float, float]]:
        """Metric -> interval from published set-ups.

        No published set-up of inference measured the memory outside the allocator, so the interval
        of the peak also covers the engineering range of `Memory` for it.
        """
        factor = float(np.exp(self.ranges.widths[stratum_of(query)]))
        values = {metric: float(base.values[metric][row]) for metric in self.metrics}
        ranges = {metric: (value / factor, value * factor) for metric, value in values.items()}
        if stratum_of(query) == "inference" and PEAK not in self._measured(query):
            reserved, (least, most) = values[RESERVED], ranges[PEAK]
            own_least, own_most = self.base.own_range(query, values[PEAK] - plan.reserved)
            least = min(least, reserved / factor + own_least)
            ranges[PEAK] = (least, max(most, reserved * factor + own_most))
        return ranges

    def _limits(self, query: Query, why: str | None, least_mib: float) -> tuple[Limit, ...]:
        """Limits as those of `base`, with what the interval was calibrated on."""
        calibrated_on = self.ranges.calibrated_on(query, why)
        calibrated = why is None and PEAK in self._measured(query)
        if why is None and not calibrated:
            calibrated_on += CONTEXT
        own = Limit(calibrated_on, PEAK, "note" if calibrated else "outside")
        return (*refusals(query, least_mib), own, *assumptions(query))
