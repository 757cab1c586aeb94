"""Average power of a GPU while it runs operators in a loop, or trains or runs a network.

A law of few coefficients (`power_law`) answers for any GPU, trained on several: what a board draws
while it waits, how fast its silicon switches, what a byte costs, and the limit. Operators on the
devices whose operators were measured are answered by boosters (`power_booster`), which are better
there and worse elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.operators import OPERATOR_CLASSES
from forerun.features.power_features import POWER_FEATURES, PowerFeatures, gather_power
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact import read_content, write_content
from forerun.models.boosters import BoosterBag
from forerun.models.calibration import LogQuantiles
from forerun.models.domain import FeatureRange
from forerun.models.power_booster import (
    boosted_w,
    dynamic_residuals,
    fit_boosters,
    shapes_left_out,
    strata,
)
from forerun.models.power_held_out import (
    after_shots,
    chips_left_out,
    jobs_left_out,
    kind_of,
    law_residuals,
)
from forerun.models.power_intervals import (
    COVERAGE,
    LEAST_SHARE,
    MOST_SHARE,
    LawIntervals,
    calibrated,
)
from forerun.models.power_law import TERMS, PowerLaw, limited_w
from forerun.models.power_measured import MeasuredRuns, is_network, phase_of
from forerun.models.power_runs import PowerRuns
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class OperatorPower:
    """Power of operators and networks on GPUs.

    Attributes:
        seed: first of the boosters' seeds.
        bag: boosters.
        trees: boosting rounds.
        calibrated: whether `fit` makes intervals.
        law: the fitted law, or None.
        boosters: for operators on the devices of `measured.operators`; None where there are none.
        intervals: of the law, or None.
        operator_intervals: of the boosters, or None.
        measured: what the training rows held.
        scalars: corrections of devices adapted to.
    """

    seed: int = 0
    bag: int = 1
    trees: int = 40
    calibrated: bool = True
    law: PowerLaw | None = None
    boosters: BoosterBag | None = None
    intervals: LawIntervals | None = None
    operator_intervals: LogQuantiles | None = None
    measured: MeasuredRuns = field(default_factory=MeasuredRuns)
    scalars: ShrunkScalars = field(default_factory=ShrunkScalars)
    name: ClassVar[str] = "operator_power"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Average power only."""
        return ("power_w",)

    def answers(self, query: Query) -> bool:
        """Operators and networks on GPUs with a known design power, once fitted."""
        device = query.device
        on_gpu = device.kind == "gpu" and device.tdp_w is not None
        return self.law is not None and on_gpu and query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """Fit the law on all rows, boosters on operators; intervals on groups left out.

        Args:
            measurements: operators, networks and diffusion models with `power_w` and the group
                `op_shape`: an operator with its shape, or a job. They are held out in turn for
                the intervals of devices that training saw, whole chips for those of others.
        """
        watts = measurements.values["power_w"]
        runs = PowerRuns.of(measurements.queries)
        kernels = measurements.take(_kernels(measurements.queries))
        fitted = replace(
            self,
            law=PowerLaw().fit(runs, watts),
            boosters=fit_boosters(kernels, self.seed, self.bag, self.trees) if kernels else None,
            intervals=None,
            operator_intervals=None,
            measured=MeasuredRuns.of(measurements.queries),
            scalars=ShrunkScalars(),
        )
        if not self.calibrated:
            return fitted
        groups = measurements.groups["op_shape"]
        parts = [*chips_left_out(runs, watts), *jobs_left_out(runs, watts, groups, self.seed)]
        parts += after_shots(measurements, runs, self.seed)
        shapes = shapes_left_out(kernels, self.seed, self.bag, self.trees) if kernels else None
        return replace(fitted, intervals=calibrated(parts), operator_intervals=shapes)

    def adapt(self, measurements: Measurements) -> Self:
        """Shrunk scalars on the dynamic part, by device and kind, from rows with `power_w`."""
        assert self.law is not None
        queries, watts = measurements.queries, measurements.values["power_w"]
        runs = PowerRuns.of(queries)
        residuals = law_residuals(runs, self.law.demand(runs), watts)
        boosted = self._boosted(queries)
        if boosted.any():
            assert self.boosters is not None
            features = gather_power(measurements.take(boosted).queries)
            predicted = boosted_w(self.boosters, features, np.zeros(len(features)))
            residuals[boosted] = dynamic_residuals(features, predicted, watts[boosted])
        devices, kinds = [q.device for q in queries], [kind_of(q) for q in queries]
        known = self.measured.devices
        return replace(self, scalars=self.scalars.updated(residuals, devices, kinds, known))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Power of each query; an interval where the predictor was calibrated."""
        assert self.law is not None
        runs = PowerRuns.of(queries)
        correction = self.scalars.correction(
            [q.device for q in queries], [kind_of(q) for q in queries]
        )
        demand = self.law.demand(runs).times(np.ones(len(queries)), np.exp(correction))
        value = limited_w(runs, demand)
        low, high = value, value
        if self.intervals is not None:
            low, high = self.intervals.ends(runs, demand, [self._known(q) for q in queries])
        boosted = self._boosted(queries)
        if boosted.any():
            kernels = [queries[int(row)] for row in np.flatnonzero(boosted)]
            answers = self._boosted_answers(kernels, correction[boosted])
            old = (value, low, high)
            value, low, high = (_placed(c, boosted, a) for c, a in zip(old, answers, strict=True))
        limits = [self._limits(query) for query in queries]
        if self.intervals is None:
            return Predictions({"power_w": value}, limits=limits)
        ends = ({"power_w": np.minimum(low, value)}, {"power_w": np.maximum(high, value)})
        return Predictions({"power_w": value}, *ends, COVERAGE, limits)

    def _boosted_answers(
        self, kernels: Sequence[Query], correction: Column
    ) -> tuple[Column, Column, Column]:
        """Value, low and high of operators on devices whose operators were measured."""
        assert self.boosters is not None
        features = gather_power(kernels)
        watts = boosted_w(self.boosters, features, correction)
        if self.operator_intervals is None:
            return watts, watts, watts
        low, high = self.operator_intervals.around(watts, strata(features, watts))
        return (watts, *_within_board(features, low, high))

    def _boosted(self, queries: Sequence[Query]) -> Mask:
        """Which of n queries are operators like those that the boosters were trained on."""
        measured = self.measured
        return np.array(
            [
                isinstance(q.workload, Kernel)
                and q.run.precision in measured.precisions
                and q.device in measured.operators
                for q in queries
            ],
            dtype=np.bool_,
        )

    def _known(self, query: Query) -> str:
        """How well the law knows a query's device."""
        if self.scalars.rows(query.device) >= ENOUGH_ROWS:
            return "adapted"
        same = query.run.precision in self.measured.precisions and is_network(query)
        return "seen" if same and query.device in self.measured.networks else "unseen"

    def _limits(self, query: Query) -> tuple[str, ...]:
        measured, lines = self.measured, []
        there = measured.networks if is_network(query) else measured.operators
        if self.scalars.rows(query.device) < ENOUGH_ROWS and query.device not in there:
            what = "networks were" if is_network(query) else "operators were"
            known = f"{what} not" if query.device in measured.devices else "not"
            others = len(measured.devices.sheets)
            lines.append(
                f"power: {known} measured on this device; a law of {others} others answers"
            )
        if query.run.precision not in measured.precisions:
            saw = ", ".join(measured.precisions)
            lines.append(f"power: precision is {query.run.precision}, training saw {saw}")
        if is_network(query) and measured.phases and phase_of(query) not in measured.phases:
            lines.append(f"power: no network was measured in {phase_of(query)}")
        if isinstance(query.workload, Kernel):
            one = OPERATOR_CLASSES[int(gather_power([query]).op_class[0])]
            if one not in measured.classes:
                lines.append(f"power: no {one} operator was measured")
        return tuple(lines)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        shapes = self.operator_intervals
        parameters = {
            "seed": self.seed,
            "bag": self.bag,
            "trees": self.trees,
            "calibrated": self.calibrated,
            "features": POWER_FEATURES,
            "fitted": len(self.boosters.texts) if self.boosters else 0,
            "law": self.law.to_json() if self.law else None,
            "intervals": self.intervals.to_json() if self.intervals else None,
            "operator_intervals": shapes.to_json() if shapes else None,
            "measured": self.measured.to_json(),
            "scalars": self.scalars.to_json(),
        }
        write_content(folder, self.name, parameters)
        if self.boosters:
            self.boosters.save(folder, "power")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        content = read_content(folder, cls.name)
        FeatureRange.check_names(folder, POWER_FEATURES, content["features"])
        count, law, reach = content["fitted"], content["law"], content["intervals"]
        if law:
            FeatureRange.check_names(folder, list(TERMS), law["terms"])
        shapes = content["operator_intervals"]
        return cls(
            seed=content["seed"],
            bag=content["bag"],
            trees=content["trees"],
            calibrated=content["calibrated"],
            law=PowerLaw.from_json(law) if law else None,
            boosters=BoosterBag.load(folder, "power", count) if count else None,
            intervals=None if reach is None else LawIntervals.from_json(reach),
            operator_intervals=LogQuantiles.from_json(shapes) if shapes else None,
            measured=MeasuredRuns.from_json(content["measured"]),
            scalars=ShrunkScalars.from_json(content["scalars"]),
        )


def _within_board(features: PowerFeatures, low: Column, high: Column) -> tuple[Column, Column]:
    tdp = features.waiting_w + features.headroom_w
    least = np.minimum(features.waiting_w, LEAST_SHARE * tdp)
    return np.maximum(low, least), np.minimum(high, MOST_SHARE * tdp)


def _placed(column: Column, rows: Mask, values: Column) -> Column:
    changed = np.array(column)
    changed[rows] = values
    return changed


def _kernels(queries: Sequence[Query]) -> Mask:
    return np.array([isinstance(q.workload, Kernel) for q in queries], dtype=np.bool_)
