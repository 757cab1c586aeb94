"""Baselines of static batches that adapt on the same support set as the predictor under test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_serving.operators import parameter_counts
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.estimator import SETTING
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.llm_serving.static_batch import RATE, StaticBatch
from forerun.models.prediction import Predictions

TREES: Final = 300
SUPPORT_WEIGHT: Final = 20.0
"""Weight of a support row; that of a training row is 1."""
PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "num_leaves": 31,
    "learning_rate": 0.05,
    "min_data_in_leaf": 5,
}
FRAMEWORKS: Final = ("vLLM", "TensorRT-LLM", "llama.cpp", "Deepspeed-MII", "sambaflow")


@dataclass(frozen=True)
class ClosedFormFactor(StoredPredictor):
    """The closed form, times one factor of a device.

    Attributes:
        factors: device -> median of measured over closed-form rates; 1 where absent.
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "static_batch_factor"
    metrics: ClassVar[tuple[str, ...]] = (RATE,)

    def answers(self, query: Query) -> bool:
        """What the predictor under test answers."""
        return StaticBatch().answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Nothing: a held-out device has no factor."""
        return replace(self, factors={})

    def adapt(self, measurements: Measurements) -> Self:
        """Set the factor of each device to the median of its rows."""
        closed = StaticBatch().predict(measurements.queries).values[RATE]
        ratios = measurements.column(RATE) / closed
        rows = rows_by(query.device.name for query in measurements.queries)
        found = {name: float(np.median(ratios[own])) for name, own in rows.items()}
        return replace(self, factors={**self.factors, **found})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Rates without intervals."""
        factors = np.array([self.factors.get(query.device.name, 1.0) for query in queries])
        return Predictions({RATE: StaticBatch().predict(queries).values[RATE] * factors})


@dataclass(frozen=True)
class RawBooster(StoredPredictor):
    """LightGBM on sizes and figures of spec sheets, without the closed form.

    Attributes:
        seed: of the booster.
        matrix, target: training rows, and logarithms of their rates.
        booster: fitted to them; None if unfitted.
    """

    seed: int = field(default=0, metadata=SETTING)
    matrix: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    target: Column = field(default_factory=lambda: np.empty(0))
    booster: BoosterBag | None = None
    name: ClassVar[str] = "static_batch_booster"
    metrics: ClassVar[tuple[str, ...]] = (RATE,)

    def answers(self, query: Query) -> bool:
        """What the predictor under test answers."""
        return self.booster is not None and StaticBatch().answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit to the rates of these rows."""
        matrix, target = _matrix(measurements.queries), np.log(measurements.column(RATE))
        booster = self._boosted(matrix, target, np.ones(len(target)))
        return replace(self, matrix=matrix, target=target, booster=booster)

    def adapt(self, measurements: Measurements) -> Self:
        """Fit anew to training rows and these, which weigh more."""
        matrix = np.vstack([self.matrix, _matrix(measurements.queries)])
        target = np.append(self.target, np.log(measurements.column(RATE)))
        weights = np.ones(len(target))
        weights[len(self.target) :] = SUPPORT_WEIGHT
        return replace(self, booster=self._boosted(matrix, target, weights))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Rates without intervals.

        Raises:
            ValueError: it is not fitted.
        """
        if self.booster is None:
            raise ValueError(f"{self.name} is not fitted")
        return Predictions({RATE: np.exp(self.booster.predict(_matrix(queries)))})

    def _boosted(self, matrix: Matrix, target: Column, weights: Column) -> BoosterBag:
        return BoosterBag.fit(
            matrix, target, parameters=PARAMETERS, trees=TREES, seeds=[self.seed], weights=weights
        )


def _matrix(queries: Sequence[Query]) -> Matrix:
    return np.array([_raw(query) for query in queries], dtype=np.float64)


def _raw(query: Query) -> list[float]:
    one, device = query.deployment, query.device
    weights, active = parameter_counts(one.model)
    context = one.load.input_tokens + one.load.output_tokens
    return [
        device.bandwidth_gbs,
        device.peak("bf16", matrix=True),
        device.memory_gib or 0.0,
        float(one.devices),
        float(one.pool.parallelism.pipeline),
        one.load.concurrency or 0.0,
        float(one.engine.max_batched_tokens or 0),
        one.load.input_tokens,
        one.load.output_tokens,
        weights,
        active,
        float(one.model.cache_bytes(int(context))),
        *(float(query.software.framework == name) for name in FRAMEWORKS),
    ]
