"""Predicts power, rate and energy of serving language models and diffusion models.

For each kind of model, boosters and a Gaussian process predict power relative to the design power
and time relative to an analytical bound of one cycle (`forerun.features.serving_features`). Energy
per token or picture is always power times devices over rate. The training set has two devices;
predictions for other devices have a wide interval and a limit until the predictor is adapted to
some runs of that device.

Prediction intervals of serving, calibrated on held-out models and on held-out devices.

On a device outside the training set, the device's error adds to the model's error: the bounds of
both are combined as the root of their sum of squares, and are at least a factor of two.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, groups_of
from forerun.data.measurements import Measurements
from forerun.data.number_formats import FORMATS
from forerun.data.query import Query
from forerun.data.workload import LlmServing
from forerun.features.llm_serving.operators import substituted
from forerun.features.serving_features import arithmetic, multiplied_as
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import (
    POOLED,
    UNCALIBRATED,
    Intervals,
    LogQuantiles,
    conformal_quantile,
    out_of_fold,
)
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.limit import Limit
from forerun.models.prediction import PredictionColumns, Predictions
from forerun.models.predictor import SETTING
from forerun.models.serving.features import (
    ENERGY_OF_ONE,
    FEATURES,
    KINDS,
    LATENCY,
    POWER,
    RATE,
    WITHOUT_CONFIGURATION,
    ServingRows,
    fit_name,
    generative,
    measured_rows,
    with_any_sequences,
    without_configuration,
)
from forerun.models.serving.fit import LogAnswer, ServingFit
from forerun.models.serving.support_residuals import SupportResiduals

HeldOutResiduals = Callable[[Mask], Matrix]
"""Mask of rows to hold out -> (3, held out) log residuals, from a fit on the other rows."""
FOLDS: Final = 10
TARGETS: Final = ("power_share", "time_over_bound", "energy_per_output")
"""Strata: the target of a residual, in the order of the columns of `ServingRows.targets`."""
ANOTHER_DEVICE: Final = float(np.log(2.0))
"""Smallest log distance of the bounds on a device outside the training set."""


def serving_intervals(
    models: Names,
    devices: Names,
    residuals: HeldOutResiduals,
    seed: int,
) -> Intervals:
    """Bounds of log(measured / predicted), with one stratum for each of `TARGETS`.

    The finite-sample correction counts rows. There are only a dozen or two models per kind and two
    devices, so bounds that count those would be the largest residual of any row.

    Args:
        models: model of each of n rows, a group that is held out whole.
        devices: device of each of n rows, also held out whole.
        residuals: residuals of held-out rows from a fit on the other rows.
        seed: assigns models to folds.
    """
    by_model = out_of_fold(models, residuals, folds=FOLDS, seed=seed, columns=len(TARGETS))
    seen = LogQuantiles.of(by_model.ravel(), np.repeat(TARGETS, len(models)))
    reach = np.zeros((len(TARGETS), 1))
    if len(np.unique(devices)) > 1:
        # The sign of another device's error is unknown: absolute residuals, each counted once.
        by_device = np.abs(out_of_fold(devices, residuals, columns=len(TARGETS)))
        reach = np.array([[conformal_quantile(column, seen.coverage)] for column in by_device])
    reach = np.maximum(np.hypot(seen.log_ends(TARGETS), reach), ANOTHER_DEVICE)
    bounds = {name: (-low, high) for name, (low, high) in zip(TARGETS, reach.tolist(), strict=True)}
    return Intervals(seen, LogQuantiles({POOLED: UNCALIBRATED, **bounds}))


ENOUGH_ROWS: Final = 10
"""Support rows from which a device counts as seen."""
CHECKED: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_serving": (
        *("log_total_parameters", "log_active_parameters", "log_sequences", "log_devices"),
        *("log_tensor_parallel", "log_expert_parallel", "log_data_parallel"),
    ),
    "diffusion": (
        *("log_parameters", "log_batch", "log_devices", "log_steps", "log_tokens"),
        *("log_ring_parallel", "log_ulysses_parallel"),
    ),
}
"""Features given directly by the query, whose ranges are checked for limits."""


@dataclass(frozen=True)
class ServingPower(StoredPredictor):
    """Power per device, rate, and energy per token or picture.

    Attributes:
        seed: determines the boosters' seeds and the folds of held-out models.
        bag: number of boosters per target.
        trees: number of boosting rounds.
        calibrated: whether `fit` also calibrates intervals, at a dozen times the cost.
        fits: name of the fit (`fit_name`) -> fitted regression.
        intervals: name of the fit -> calibrated bounds.
        known: devices in the training set.
        choices: kinds of requests, architectures and weight formats in the training set, in words.
        support: name of the fit -> support set of the last `adapt`.
    """

    seed: int = field(default=0, metadata=SETTING)
    bag: int = field(default=2, metadata=SETTING)
    trees: int = field(default=120, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    fits: Mapping[str, ServingFit] = field(default_factory=dict)
    intervals: Mapping[str, Intervals] = field(default_factory=dict)
    known: KnownDevices = field(default_factory=KnownDevices)
    choices: tuple[str, ...] = ()
    support: Mapping[str, SupportResiduals] = field(default_factory=dict)
    name: ClassVar[str] = "serving_power"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        f"features of {kind}": FEATURES[kind] for kind in KINDS
    }

    @property
    def metrics(self) -> tuple[str, ...]:
        """Power of one device, time of a batch, rates, and energies of all devices together."""
        return (POWER, LATENCY, "energy_j", *RATE.values(), *ENERGY_OF_ONE.values())

    def answers(self, query: Query) -> bool:
        """Whether the kind of model was trained on and the GPU's memory is known."""
        device = query.device
        sheet = device.has_sheet and device.memory_gib is not None
        fitted = query.workload.kind in KINDS and fit_name(query) in self.fits
        return fitted and device.kind == "gpu" and sheet

    def fit(self, measurements: Measurements) -> Self:
        """Fit each kind that has rows with power and rate (language) or time (diffusion).

        There are two fits per kind, both on all of its rows: one with the optional fields of the
        model's configuration, and one without them for queries that lack them.

        Args:
            measurements: rows; calibration holds out the rows of one model (group `model`)
                together, and those of one device.
        """
        fits: dict[str, ServingFit] = {}
        intervals: dict[str, Intervals] = {}
        queries: list[Query] = []
        for kind in KINDS:
            training = measured_rows(measurements, kind)
            if not len(training):
                continue
            models = training.groups.get("model", np.arange(len(training)).astype(np.str_))
            devices = np.array([q.device.name for q in training.queries], dtype=np.str_)
            queries += training.queries
            bare = [without_configuration(query) for query in training.queries]
            for name, inputs in (
                (kind, training.queries),
                (kind + WITHOUT_CONFIGURATION, bare),
            ):
                rows = ServingRows.of(kind, inputs)
                targets = rows.targets(training.values)
                fits[name] = self._fitted(rows, targets, models)
                if self.calibrated and len(np.unique(models)) > 1:
                    residuals = partial(self._held_out_residuals, rows, targets, models)
                    intervals[name] = serving_intervals(models, devices, residuals, self.seed)
        return replace(
            self,
            fits=fits,
            intervals=intervals,
            known=KnownDevices.of([query.device for query in queries]),
            choices=tuple(sorted({choice for q in queries for choice in _choices(q)})),
            support={},
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Few-shot correction from the residuals of rows with power and rate, or time.

        The new support set of a fit replaces its earlier one; a fit without rows keeps its own.
        """
        support = dict(self.support)
        for name, fit in self.fits.items():
            rows = measured_rows(measurements, fit.kind)
            rows = rows.take(np.array([fit_name(q) == name for q in rows.queries], dtype=np.bool_))
            if len(rows):
                inputs = ServingRows.of(fit.kind, rows.queries)
                errors = inputs.targets(rows.values)[:, :2] - fit.predict(inputs).columns[:, :2]
                devices = [query.device for query in rows.queries]
                support[name] = SupportResiduals.of(inputs, errors, devices, self.known)
        return replace(self, support=support)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals and limits, in the order of the queries.

        Raises:
            UnknownPrecision: a device's sheet has no peak for the weights' arithmetic.
        """
        answer = PredictionColumns(len(queries), self.metrics)
        for name, rows in groups_of(map(fit_name, queries)).items():
            answer.put(rows, self._predict_by(name, [queries[row] for row in rows]))
        return answer.predictions()

    def _predict_by(self, name: str, queries: Sequence[Query]) -> Predictions:
        """Predictions by the fit of that name."""
        kind = self.fits[name].kind
        rows = ServingRows.of(kind, queries)
        answer, devices = self.fits[name].predict(rows), [q.device for q in queries]
        ratios = np.ones((len(queries), 3))
        if name in self.support:
            correction, posterior = self.support[name].correction(rows, devices)
            ratios = np.column_stack([posterior, posterior.max(axis=1)])
            answer = LogAnswer(answer.share + correction[:, 0], answer.slower + correction[:, 1])
        values = rows.metrics(answer.share, answer.slower)
        limits = self._limits(name, queries, rows.features)
        if name not in self.intervals:
            return Predictions(values, limits=limits)
        seen = np.array([self._seen(query) for query in queries])
        bounds = [
            self.intervals[name].log_ends([target] * len(queries), seen) for target in TARGETS
        ]
        factors = np.exp(np.stack(bounds, axis=1) * ratios[:, :, None])
        low, high = (_ends(kind, values, factors, end) for end in (0, 1))
        return Predictions(values, low, high, 0.9, limits)

    def _fitted(self, rows: ServingRows, targets: Matrix, models: Names) -> ServingFit:
        seeds = range(self.bag * self.seed, self.bag * (self.seed + 1))
        return ServingFit.of(rows, targets, models, trees=self.trees, seeds=seeds)

    def _held_out_residuals(
        self, rows: ServingRows, targets: Matrix, models: Names, held: Mask
    ) -> Matrix:
        """Residuals of the held-out rows by a fit to the others, shape (3, held out)."""
        fitted = self._fitted(rows.take(~held), targets[~held], models[~held])
        return np.asarray(targets[held] - fitted.predict(rows.take(held)).columns).T

    def _seen(self, query: Query) -> bool:
        support = self.support.get(fit_name(query))
        measured = 0 if support is None else support.rows(query.device)
        return query.device in self.known or measured >= ENOUGH_ROWS

    def _limits(
        self, name: str, queries: Sequence[Query], features: Matrix
    ) -> list[tuple[Limit, ...]]:
        """Limits of n queries answered by the fit of that name."""
        fit = self.fits[name]
        checked = [FEATURES[fit.kind].index(feature) for feature in CHECKED[fit.kind]]
        given = FeatureRange(CHECKED[fit.kind], fit.ranges.low[checked], fit.ranges.high[checked])
        limits = given.outside_each(features[:, checked])
        for rows in groups_of(map(with_any_sequences, queries)).values():
            lines = tuple(map(Limit, self._lines(queries[rows[0]])))
            for row in rows:
                limits[row] += lines
        return limits

    def _lines(self, query: Query) -> list[str]:
        """What else is outside the training set, regardless of the number of sequences."""
        workload, device = generative(query), query.device
        unknown = [choice for choice in _choices(query) if choice not in self.choices]
        lines = [f"no {choice} was in the training set" for choice in unknown]
        if not self._seen(query):
            lines.append(
                "serving was measured only on other devices; a few runs on this one would help"
            )
        if query.operation.power_limit_w is not None:
            lines.append("power limit: serving was measured without one; the answer is without it")
        wanted = multiplied_as(workload.weights).precisions[0]
        found, width = arithmetic(workload.weights, device), FORMATS[workload.weights].bytes
        if width < 2 and found != wanted:
            lines.append(substituted(workload.weights, wanted, found))
        return lines


def _ends(kind: str, values: Mapping[str, Column], factors: Matrix, end: int) -> dict[str, Column]:
    """Metric -> (n,) low (`end` 0) or high (`end` 1); a rate is low where time is high."""
    share, slower, energy = (factors[:, target, end] for target in range(3))
    faster = 1.0 / factors[:, 1, 1 - end]
    by_metric = {
        POWER: share,
        RATE[kind]: faster,
        ENERGY_OF_ONE[kind]: energy,
        LATENCY: slower,
        "energy_j": energy,
    }
    return {metric: values[metric] * by_metric[metric] for metric in values}


def _choices(query: Query) -> tuple[str, ...]:
    """Categorical properties of a workload, in the words of the limits."""
    workload = generative(query)
    if isinstance(workload, LlmServing):
        return (
            f"{workload.request} request",
            f"{workload.architecture} language model",
            f"language model in {workload.weights}",
        )
    return (f"diffusion model in {workload.weights}",)
