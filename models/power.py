"""Average power of a GPU while it runs operators in a loop, or a network.

Power is what the device draws while it waits, plus a dynamic part that cannot exceed what the
design power leaves. What an operator would draw at its roofline follows from the energy of a byte
and of a multiply-add; how much of it shows is learnt from dimensionless features: how long a kernel
keeps the device busy, how much arithmetic it does, whether its data fits L2. A network's power is
the mean over its operators' time.

Two devices teach this. Where one predicts the other the error is 36 to 48 %, so an answer for
anything else carries an interval of that size and a line that says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators import OPERATOR_CLASSES
from forerun.features.power_features import (
    POWER_FEATURES,
    PowerFeatures,
    gather_power,
    waiting_w,
)
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact import read_content, write_content
from forerun.models.boosters import BoosterBag
from forerun.models.calibration import LogQuantiles, held_out_folds
from forerun.models.domain import FeatureRange, KnownDevices
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "objective": "l1",
}
LEAST_SHARE, MOST_SHARE = 0.15, 1.05
"""Of the design power: a waiting device, and a short overshoot of its limit."""

LEAST_DYNAMIC = 0.02
"""Of the design power: the dynamic part of kernels so short that the device waits."""

SHORT_MS = 0.02
STRATA = ("busy", "limit", "short", "short_limit")
"""Kernels below the power limit and at it; those whose roofline time is under `SHORT_MS` apart."""

STRANGE_SHARE = 0.1
"""Of a query's time in classes that nobody measured, from which on it is said."""

SHOTS, DRAWS = 20, 5
"""Rows, and how often they are drawn, when an adapted device's interval is calibrated."""

UNSEEN_AT_LEAST = float(np.log(2.0))
"""Half to double: a handful of teaching devices may agree by chance, the next one need not."""

ANYTHING = LogQuantiles({"all": (-5.0, 5.0)})
"""No second device says how far off another one is: the whole range of shares."""


@dataclass(frozen=True, slots=True)
class PowerIntervals:
    """Quantiles of log(measured / predicted).

    Attributes:
        seen: held-out shapes on devices that stay, by stratum.
        unseen: held-out devices, each counting alike.
        adapted: held-out devices of which 20 rows were then shown.
    """

    seen: LogQuantiles
    unseen: LogQuantiles = ANYTHING
    adapted: LogQuantiles = ANYTHING

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {name: getattr(self, name).to_json() for name in ("seen", "unseen", "adapted")}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "PowerIntervals":
        """The intervals that `to_json` wrote."""
        return cls(**{name: LogQuantiles.from_json(part) for name, part in content.items()})


@dataclass(frozen=True)
class OperatorPower:
    """Power of kernels, and of networks as the mean over their operators' time.

    Attributes:
        seed: first of the bag's seeds.
        bag: boosters.
        trees: boosting rounds.
        calibrated: whether `fit` makes intervals.
        boosters: fitted bag, or None.
        intervals: fitted intervals, or None.
        known: devices of the training rows.
        precisions: number formats of the training rows.
        classes: operator classes of the training rows.
        scalars: corrections of devices adapted to.
    """

    seed: int = 0
    bag: int = 1
    trees: int = 40
    calibrated: bool = True
    boosters: BoosterBag | None = None
    intervals: PowerIntervals | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    precisions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    scalars: ShrunkScalars = field(default_factory=ShrunkScalars)
    name: ClassVar[str] = "operator_power"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Average power only."""
        return ("power_w",)

    def answers(self, query: Query) -> bool:
        """Kernels and networks on GPUs with a known design power, once fitted."""
        fitted = self.boosters is not None
        device = query.device
        on_gpu = device.kind == "gpu" and device.tdp_w is not None
        return fitted and on_gpu and query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """Fit on kernels; intervals come from fits that did not see their rows.

        Args:
            measurements: kernels with `power_w` and the groups `op_shape` (held out in turn for
                the interval on seen devices) and `device` (likewise for unseen ones).
        """
        features = gather_power(measurements.queries)
        target = _log_dynamic_ratio(features, measurements.values["power_w"])
        seeds = range(self.seed * 100 + 1, self.seed * 100 + 1 + self.bag)
        boosters = BoosterBag.fit(
            features.matrix, target, parameters=SETTINGS, trees=self.trees, seeds=seeds
        )
        fitted = replace(
            self,
            boosters=boosters,
            intervals=None,
            known=KnownDevices.of([q.device for q in measurements.queries]),
            precisions=tuple(sorted({q.run.precision for q in measurements.queries})),
            classes=tuple(sorted({OPERATOR_CLASSES[c] for c in np.unique(features.op_class)})),
            scalars=ShrunkScalars(),
        )
        if not self.calibrated:
            return fitted
        return replace(fitted, intervals=_calibrate(replace(self, calibrated=False), measurements))

    def adapt(self, measurements: Measurements) -> Self:
        """Shrunk scalars on the dynamic part, by device and kind, from rows with `power_w`."""
        plain = replace(self, scalars=ShrunkScalars(), intervals=None)
        predicted = plain.predict(measurements.queries).values["power_w"]
        devices = [q.device for q in measurements.queries]
        waiting = np.array([waiting_w(device) for device in devices])
        floor = LEAST_DYNAMIC * np.array([device.tdp_w for device in devices])
        measured = np.maximum(measurements.values["power_w"] - waiting, floor)
        residuals = np.log(measured / np.maximum(predicted - waiting, floor))
        strata = [_kind(q) for q in measurements.queries]
        return replace(self, scalars=self.scalars.updated(residuals, devices, strata, self.known))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Power of each query, with low and high averaged over its operators alike.

        The errors of a network's operators are taken as fully correlated, so a network's interval
        is the mean of its operators' intervals.
        """
        assert self.boosters is not None
        features = gather_power(queries)
        scalars = self.scalars.correction([q.device for q in queries], [_kind(q) for q in queries])
        ratio = self.boosters.predict(features.matrix)
        watts = _watts(features, ratio, scalars[features.owner])
        value = features.mean_over_time(watts, len(queries))
        strange = self._strange(features, len(queries))
        limits = [self._limits(q, names) for q, names in zip(queries, strange, strict=True)]
        if self.intervals is None:
            return Predictions({"power_w": value}, limits=limits)
        low, high = self._bounds(self.intervals, features, watts, queries)
        return Predictions(
            {"power_w": value},
            {"power_w": np.minimum(features.mean_over_time(low, len(queries)), value)},
            {"power_w": np.maximum(features.mean_over_time(high, len(queries)), value)},
            self.intervals.seen.coverage,
            limits,
        )

    def _bounds(
        self,
        intervals: PowerIntervals,
        features: PowerFeatures,
        watts: Column,
        queries: Sequence[Query],
    ) -> tuple[Column, Column]:
        """Low and high of each operator, within what the device can draw."""
        codes = _strata(features, watts)
        trust = np.array([self._trust(query) for query in queries])[features.owner]
        far = (("unseen", intervals.unseen), ("adapted", intervals.adapted))
        low, high = _scaled(watts, intervals.seen, STRATA, codes)
        for kind, quantiles in far:
            mine = trust == kind
            if mine.any():
                wide = _scaled(watts, quantiles, ("all",), np.zeros_like(codes))
                low, high = np.where(mine, wide[0], low), np.where(mine, wide[1], high)
        tdp = features.waiting_w + features.headroom_w
        least = np.minimum(features.waiting_w, LEAST_SHARE * tdp)
        return np.maximum(low, least), np.minimum(high, MOST_SHARE * tdp)

    def _trust(self, query: Query) -> str:
        """Which quantiles answer for a query."""
        if _trains(query) or query.run.precision not in self.precisions:
            return "unseen"
        if query.device in self.known:
            return "seen"
        return "adapted" if self.scalars.rows(query.device) >= ENOUGH_ROWS else "unseen"

    def _strange(self, features: PowerFeatures, queries: int) -> list[tuple[str, ...]]:
        """Classes that nobody measured and that take a tenth of a query's time or more."""
        classes = len(OPERATOR_CLASSES)
        cells = features.owner * classes + features.op_class
        times = np.bincount(cells, features.time_ms, queries * classes).reshape(queries, classes)
        new = np.array([name not in self.classes for name in OPERATOR_CLASSES])
        heavy = new & (times > STRANGE_SHARE * times.sum(axis=1, keepdims=True))
        return [tuple(OPERATOR_CLASSES[c] for c in np.flatnonzero(row)) for row in heavy]

    def _limits(self, query: Query, strange: Sequence[str]) -> tuple[str, ...]:
        lines = []
        if query.device not in self.known and self.scalars.rows(query.device) < ENOUGH_ROWS:
            lines.append(
                f"power: not measured on this device; {len(self.known.sheets)} others teach it, "
                "and one answers for another with an error of a third or more"
            )
        if query.run.precision not in self.precisions:
            lines.append(
                f"power: precision is {query.run.precision}, training saw "
                f"{', '.join(self.precisions)}"
            )
        if _trains(query):
            lines.append("power: training is answered from operators of forward passes")
        lines.extend(f"power: no {name} operator was measured" for name in strange)
        return tuple(lines)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        parameters = {
            "seed": self.seed,
            "bag": self.bag,
            "trees": self.trees,
            "calibrated": self.calibrated,
            "features": POWER_FEATURES,
            "fitted": len(self.boosters.texts) if self.boosters else 0,
            "intervals": self.intervals.to_json() if self.intervals else None,
            "known": self.known.sheets,
            "precisions": self.precisions,
            "classes": self.classes,
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
        count, intervals = content["fitted"], content["intervals"]
        return cls(
            seed=content["seed"],
            bag=content["bag"],
            trees=content["trees"],
            calibrated=content["calibrated"],
            boosters=BoosterBag.load(folder, "power", count) if count else None,
            intervals=PowerIntervals.from_json(intervals) if intervals else None,
            known=KnownDevices(tuple(tuple(s) for s in content["known"])),
            precisions=tuple(content["precisions"]),
            classes=tuple(content["classes"]),
            scalars=ShrunkScalars.from_json(content["scalars"]),
        )


def _log_dynamic_ratio(features: PowerFeatures, watts: Column) -> Column:
    """What the booster learns: log of dynamic power over what the roofline would draw."""
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    return np.log(np.maximum(watts - features.waiting_w, floor) / features.base_w)


def _watts(features: PowerFeatures, ratio: Column, correction: Column) -> Column:
    """Back from log ratios, corrected for adapted devices, at most the design power."""
    dynamic = features.base_w * np.exp(ratio + correction)
    return features.waiting_w + np.minimum(dynamic, features.headroom_w)


def _strata(features: PowerFeatures, watts: Column) -> NDArray[np.intp]:
    """Positions in `STRATA`: kernels at the power limit are predicted best, short ones worst."""
    at_limit = watts > 0.9 * (features.waiting_w + features.headroom_w)
    codes: NDArray[np.intp] = at_limit + 2 * (features.bound_ms < SHORT_MS).astype(np.intp)
    return codes


def _scaled(
    watts: Column, quantiles: LogQuantiles, strata: Sequence[str], codes: NDArray[np.intp]
) -> tuple[Column, Column]:
    """Low and high around n values, each by the quantiles of its stratum."""
    low, high = quantiles.around(np.ones(len(strata)), strata)
    return watts * low[codes], watts * high[codes]


def _calibrate(settings: OperatorPower, rows: Measurements) -> PowerIntervals:
    measured = np.log(rows.values["power_w"])
    seen, strata = np.full(len(rows), np.nan), np.full(len(rows), "all", dtype="U16")
    for held in held_out_folds(rows.groups["op_shape"], 5, settings.seed):
        if held.all():
            continue
        asked = rows.take(held).queries
        watts = settings.fit(rows.take(~held)).predict(asked).values["power_w"]
        seen[held] = measured[held] - np.log(watts)
        strata[held] = np.array(STRATA)[_strata(gather_power(asked), watts)]
    shapes = LogQuantiles.of(seen, strata)
    devices = rows.groups.get("device", np.full(len(rows), "one"))
    if len(np.unique(devices)) < 2:
        return PowerIntervals(shapes)
    unseen: list[Column] = []
    adapted: list[Column] = []
    for device in np.unique(devices):
        away = settings.fit(rows.take(devices != device))
        here = rows.take(devices == device)
        unseen.append(_missed(away, here))
        adapted.extend(_missed_after_shots(away, here, settings.seed))
    low, high = _each_alike(unseen).bounds["all"]
    wide = (min(low, -UNSEEN_AT_LEAST), max(high, UNSEEN_AT_LEAST))
    return PowerIntervals(shapes, LogQuantiles({"all": wide}), _each_alike(adapted))


def _missed(fitted: OperatorPower, rows: Measurements) -> Column:
    predicted = fitted.predict(rows.queries).values["power_w"]
    return np.log(rows.values["power_w"] / predicted)


def _missed_after_shots(fitted: OperatorPower, rows: Measurements, seed: int) -> Iterator[Column]:
    random = np.random.default_rng(seed)
    for _ in range(DRAWS):
        shown = np.zeros(len(rows), dtype=np.bool_)
        shown[random.permutation(len(rows))[:SHOTS]] = True
        if not shown.all():
            yield _missed(fitted.adapt(rows.take(shown)), rows.take(~shown))


def _each_alike(parts: Sequence[Column], each: int = 1000) -> LogQuantiles:
    """Every part counts alike: the same number of evenly spaced quantiles of its residuals."""
    levels = (np.arange(each) + 0.5) / each
    pooled = [np.quantile(part, levels) for part in parts]
    residuals = np.concatenate(pooled) if pooled else np.zeros(0)
    return LogQuantiles.of(residuals, np.full(len(residuals), "all"))


def _kind(query: Query) -> str:
    workload = query.run
    return workload.operator.kind if isinstance(workload, Kernel) else "network"


def _trains(query: Query) -> bool:
    workload = query.run
    return isinstance(workload, Network) and (
        workload.phase == "training" or workload.graph.training
    )
