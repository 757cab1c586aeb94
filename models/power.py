"""Average power of the device while it runs operators in a loop.

The share of the design power is learnt from dimensionless features: how long the device is busy at
a time, how much of the time it does arithmetic, whether data comes from L2. On devices that nobody
measured two teaching devices cannot say more than a range (40 to 86 % error when one predicts the
other): the answer is pulled half-way to what GPUs draw on average, and the interval is the range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import NumberFormat
from forerun.features.operator_table import OperatorTable
from forerun.features.operators import IS_GEMM
from forerun.features.query_table import gather
from forerun.features.roofline import (
    COMPUTE_PRECISION,
    power_capped_tflops,
    roofline_ms,
    traffic_bytes,
)
from forerun.models.artifact import read_content, write_content
from forerun.models.boosters import BoosterBag
from forerun.models.calibration import Intervals, LogQuantiles, held_out_folds, held_out_residuals
from forerun.models.domain import FeatureRange, KnownDevices
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
FEATURES = (
    "log_roofline",
    "log_compute_over_memory",
    "log_bytes_over_l2",
    "log_flops_per_unit",
    "is_product",
    "class",
    "tensor_cores",
    "log_capped_share",
)
SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.06,
    "num_leaves": 15,
    "min_data_in_leaf": 15,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "objective": "l1",
}
LEAST_SHARE, MOST_SHARE = 0.1, 1.05
"""Of the design power: an idle device, and a short overshoot of its limit."""

TYPICAL_SHARE = 0.7
"""Mean draw of GPUs under load over many models (ML.ENERGY leaderboard, H100 and B200)."""

ANYTHING = LogQuantiles({"all": (-5.0, 5.0)})
"""No teaching device says how far off another one is: the whole range of shares."""


@dataclass(frozen=True)
class OperatorPower:
    """Power of kernels, and of networks as the mean over their operators' time.

    Attributes:
        seed: first of the bag's seeds.
        bag: boosters.
        trees: boosting rounds.
        boosters: fitted bag, or None.
        intervals: seen devices by held-out shapes, unseen ones by the whole range.
        known: devices of the training rows.
    """

    seed: int = 0
    bag: int = 3
    trees: int = 200
    boosters: BoosterBag | None = None
    intervals: Intervals | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    name: ClassVar[str] = "operator_power"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Average power only."""
        return ("power_w",)

    def answers(self, query: Query) -> bool:
        """Kernels and networks on GPUs with a known design power, once fitted."""
        fitted = self.boosters is not None
        return fitted and query.device.kind == "gpu" and query.device.tdp_w is not None

    def fit(self, measurements: Measurements) -> Self:
        """Fit on kernels with `power_w`; values of the group `op_shape` are held out in turn."""
        matrix = _matrix(measurements.queries)
        tdp = np.array([q.device.tdp_w for q in measurements.queries], dtype=np.float64)
        target = np.log(measurements.values["power_w"] / tdp)

        def missed(masks: Sequence[NDArray[np.bool_]]) -> LogQuantiles:
            def fit_predict(fit: NDArray[np.bool_], held: NDArray[np.bool_]) -> Column:
                return _clipped(self._fitted(matrix[fit], target[fit], 1).predict(matrix[held]))

            return LogQuantiles.of(
                held_out_residuals(target, iter(masks), fit_predict),
                np.full(len(target), "power"),
            )

        shapes = list(held_out_folds(measurements.groups["op_shape"], 5, self.seed))
        return replace(
            self,
            boosters=self._fitted(matrix, target, self.bag),
            intervals=Intervals(missed(shapes), ANYTHING),
            known=KnownDevices.of([q.device for q in measurements.queries]),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Itself: few-shot power needs about 20 rows of a new device and is not built yet."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Design power times the predicted share, weighted by each operator's bound."""
        assert self.boosters is not None
        n = len(queries)
        weighted, weight = np.zeros(n), np.zeros(n)
        for part in gather(queries):
            features, bound = _features(part.table, part.device, part.precision)
            share = np.exp(_clipped(self.boosters.predict(features)))
            if part.device not in self.known:
                share = np.sqrt(share * TYPICAL_SHARE)
            time = bound * part.table.repeat
            np.add.at(weighted, part.owner, share * time)
            np.add.at(weight, part.owner, time)
        tdp = np.array([q.device.tdp_w or np.nan for q in queries])
        value = tdp * weighted / weight
        seen = np.array([q.device in self.known for q in queries], dtype=np.bool_)
        low, high = self._interval(value, seen, tdp)
        limits = [self._limits(query) for query in queries]
        coverage = self.intervals.seen.coverage if self.intervals else None
        return Predictions({"power_w": value}, low, high, coverage, limits)

    def _interval(
        self, value: Column, seen: NDArray[np.bool_], tdp: Column
    ) -> tuple[dict[str, Column], dict[str, Column]]:
        if self.intervals is None:
            return {}, {}
        low, high = self.intervals.around(value, ["power"] * len(value), seen)
        low = np.minimum(value, np.maximum(low, LEAST_SHARE * tdp))
        high = np.maximum(value, np.minimum(high, MOST_SHARE * tdp))
        return {"power_w": low}, {"power_w": high}

    def _limits(self, query: Query) -> tuple[str, ...]:
        if query.device in self.known:
            return ()
        return ("power: not measured on this device; the range is that of any",)

    def _fitted(self, matrix: Column, target: Column, bag: int) -> BoosterBag:
        seeds = range(self.seed * 100 + 1, self.seed * 100 + 1 + bag)
        return BoosterBag.fit(matrix, target, parameters=SETTINGS, trees=self.trees, seeds=seeds)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        parameters = {
            "seed": self.seed,
            "bag": self.bag,
            "trees": self.trees,
            "features": FEATURES,
            "fitted": len(self.boosters.texts) if self.boosters else 0,
            "intervals": self.intervals.to_json() if self.intervals else None,
            "known": self.known.sheets,
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
        FeatureRange.check_names(folder, FEATURES, content["features"])
        count = content["fitted"]
        return cls(
            seed=content["seed"],
            bag=content["bag"],
            trees=content["trees"],
            boosters=BoosterBag.load(folder, "power", count) if count else None,
            intervals=Intervals.from_json(content["intervals"]) if content["intervals"] else None,
            known=KnownDevices(tuple((s[0], s[1], s[2]) for s in content["known"])),
        )


def _clipped(log_share: Column) -> Column:
    return np.clip(log_share, np.log(LEAST_SHARE), np.log(MOST_SHARE))


def _features(
    table: OperatorTable, device: Device, precision: NumberFormat
) -> tuple[Column, Column]:
    """Columns of `FEATURES`, shape (n, 8), and each operator's bound in milliseconds."""
    arithmetic = COMPUTE_PRECISION[precision]
    peak = device.peak(arithmetic, matrix=True)
    bound = roofline_ms(table, device, precision)
    moved = traffic_bytes(table, precision)
    compute = np.maximum(table.flops, 1.0) / (peak * 1e12)
    memory = np.maximum(moved, 1.0) / (device.memory_bandwidth_gbs * 1e9)
    l2 = (device.l2_mib or 6.0) * 2**20
    fp32 = device.peak_tflops.get("fp32", peak)
    ones = np.ones(len(table))
    columns = (
        np.clip(np.log(np.maximum(bound, 1e-6) / 0.01), -6, 8),
        np.clip(np.log(compute / memory), -8, 5),
        np.clip(np.log(np.maximum(moved, 1.0) / l2), -8, 8),
        np.clip(np.log(np.maximum(table.flops, 1.0) / (device.compute_units or 80) / 1e6), -8, 8),
        IS_GEMM[table.kind].astype(np.float64),
        table.op_class.astype(np.float64),
        ones * float(peak > 1.5 * fp32),
        ones * np.log(power_capped_tflops(device, arithmetic) / peak),
    )
    return np.stack(columns, axis=1), bound


def _matrix(queries: Sequence[Query]) -> Column:
    """Features of kernels in the order of the queries, shape (n, 8)."""
    matrix = np.zeros((len(queries), len(FEATURES)))
    for part in gather(queries):
        matrix[part.owner] = _features(part.table, part.device, part.precision)[0]
    return matrix
