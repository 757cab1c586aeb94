"""Latencies and rates of deployed language models.

Time to the first token and time for each further token are the closed form times a correction that
is fitted to measured serving runs. Rates and the time of a request follow from the two by Little's
law. Unfitted, the closed form answers alone, without intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_serving.features import FIGURES, SHAPE, DeploymentRows
from forerun.features.llm_serving.operators import Sheet, parameter_counts
from forerun.features.llm_serving.steady_state import SteadyState
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.estimator import SETTING
from forerun.models.limit import Limit
from forerun.models.llm_serving.correction import Correction
from forerun.models.llm_serving.part_scales import FORMS
from forerun.models.prediction import Predictions

MANY: Final = 16.0
"""Prompts on average before a request's own, from which on intervals are those of long queues."""
TIMES: Final = tuple(metric for metric, _, _ in FORMS)
FOLDS: Final = 5
CHECKED: Final = ("log_input_tokens", "log_output_tokens", "log_sequences", "log_tensor")
"""Features whose ranges are checked for limits."""
Sizes = tuple[int, int, int, int]
"""Layers, width, and total and active parameters: what tells models apart."""


@dataclass(frozen=True)
class LlmLatency(StoredPredictor):
    """Time to the first token, time per token, and rates of a deployed language model.

    Attributes:
        seed: determines the boosters' seeds and the folds of the calibration.
        bag: number of boosters for each time.
        trees: number of boosting rounds.
        calibrated: whether `fit` also calibrates intervals, which costs fifteen times as much.
        corrections: fitted predictions of the times in the order of `FORMS`; empty if unfitted.
        intervals: bounds of log(measured / predicted), with two strata for each time.
        known: devices in the training set.
        models: models in the training set.
        ranges: ranges of the features of the training set; None if unfitted.
        support: corrections of each time by `adapt`.
    """

    seed: int = field(default=0, metadata=SETTING)
    bag: int = field(default=1, metadata=SETTING)
    trees: int = field(default=1500, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    corrections: tuple[Correction, ...] = ()
    intervals: Intervals | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    models: tuple[Sizes, ...] = ()
    ranges: FeatureRange | None = None
    support: tuple[ShrunkScalars, ...] = (ShrunkScalars(), ShrunkScalars())
    name: ClassVar[str] = "llm_latency"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of a deployment": (*SHAPE, *FIGURES)
    }

    @property
    def metrics(self) -> tuple[str, ...]:
        """Times of a request, and rates of all devices together and of one."""
        return (
            *("tpot_ms", "ttft_ms", "ttft_service_ms", "request_latency_ms"),
            *("requests_per_s", "tokens_per_s", "tokens_per_s_per_device"),
        )

    def answers(self, query: Query) -> bool:
        """Deployed language models on GPUs with a spec sheet."""
        device = query.device
        return query.workload.kind == "llm_deployment" and device.kind == "gpu" and device.has_sheet

    def fit(self, measurements: Measurements) -> Self:
        """Fit both times to rows that have both; without such rows nothing changes.

        Args:
            measurements: rows with `ttft_ms` and `tpot_ms`. Rows of one `deployment`, of one
                `device` and of one `model` (groups) are held out together in the calibration.
        """
        logs = np.column_stack([np.log(measurements.column(metric) / 1e3) for metric in TIMES])
        kept = np.isfinite(logs).all(axis=1)
        if not kept.any():
            return self
        training, targets = measurements.take(kept), logs[kept]
        rows, _ = DeploymentRows.of(training.queries)
        names = (*SHAPE, *FIGURES)
        fitted = replace(
            self,
            corrections=self._fitted(rows, targets, self.bag),
            known=KnownDevices.of([query.device for query in training.queries]),
            models=tuple(sorted({sizes(query.deployment) for query in training.queries})),
            ranges=FeatureRange.of(names, np.column_stack([rows.shape, rows.figures])),
            support=(ShrunkScalars(), ShrunkScalars()),
        )
        if not self.calibrated:
            return replace(fitted, intervals=None)
        return replace(fitted, intervals=self._intervals(training, rows, targets))

    def adapt(self, measurements: Measurements) -> Self:
        """Shrunken offsets of both times for each device of the rows, by model and engine.

        The offsets of a device replace its former ones.
        """
        if not len(measurements):
            return self
        queries = measurements.queries
        rows, _ = DeploymentRows.of(queries)
        found = self._log_seconds(rows, self._seen(queries, adapted=False))
        devices = [query.device for query in queries]
        strata = [stratum(query.deployment) for query in queries]
        support = []
        for own, metric, predicted in zip(self.support, TIMES, found.T, strict=True):
            with np.errstate(invalid="ignore", divide="ignore"):
                residuals = np.log(measurements.column(metric) / 1e3) - predicted
            support.append(own.updated(residuals, devices, strata))
        return replace(self, support=tuple(support))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals and limits, in the order of the queries.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        if not queries:
            return Predictions({metric: np.zeros(0) for metric in self.metrics})
        rows, states = DeploymentRows.of(queries)
        logs = self._log_seconds(rows, self._seen(queries, adapted=False))
        devices = [query.device for query in queries]
        strata = [stratum(query.deployment) for query in queries]
        for column, own in enumerate(self.support):
            logs[:, column] += own.correction(devices, strata)
        tpot, ttft = np.exp(logs).T
        values = _metrics(queries, states, rows, tpot, ttft)
        limits = [self._limits(*one) for one in zip(queries, states, rows.shape, strict=True)]
        if self.intervals is None:
            return Predictions(values, limits=limits)
        seen = self._seen(queries, adapted=True)
        bounds = [self.intervals.log_ends(_strata(metric, rows), seen) for metric in TIMES]
        low, high = (
            _metrics(queries, states, rows, *(np.exp(logs + _side(bounds, end)).T))
            for end in (0, 1)
        )
        for metric in self.metrics:
            if metric.endswith("_s") or "_s_" in metric:
                low[metric], high[metric] = high[metric], low[metric]
        always = np.ones(len(queries), dtype=np.bool_)
        return Predictions(values, low, high, 0.9, limits, always=always)

    def _fitted(self, rows: DeploymentRows, targets: Matrix, bag: int) -> tuple[Correction, ...]:
        seeds = range(self.bag * self.seed, self.bag * self.seed + bag)
        return tuple(
            Correction.fit(form, rows, target, self.trees, seeds)
            for form, target in enumerate(targets.T)
        )

    def _log_seconds(self, rows: DeploymentRows, seen: Mask) -> Matrix:
        """Logarithms of both times without the support set's correction, shape (n, 2)."""
        if self.corrections:
            return np.column_stack([one.predict(rows, seen) for one in self.corrections])
        plain = [np.zeros(number) for _, _, number in FORMS]
        forms = zip(FORMS, plain, strict=True)
        return np.column_stack([np.log(seconds(ones, rows)) for (_, seconds, _), ones in forms])

    def _seen(self, queries: Sequence[Query], *, adapted: bool) -> Mask:
        """Whether device and model are in the training set, or have enough support rows, (n,)."""
        return np.array(
            [
                (query.device in self.known and sizes(query.deployment) in self.models)
                or (adapted and self.support[0].rows(query.device) >= ENOUGH_ROWS)
                for query in queries
            ],
            dtype=np.bool_,
        )

    def _intervals(
        self, training: Measurements, rows: DeploymentRows, targets: Matrix
    ) -> Intervals:
        """Bounds from held-out deployments, and from held-out devices and models together."""
        labels = np.concatenate([_strata(metric, rows) for metric in TIMES])

        def residuals(held: Mask, *, seen: bool) -> Matrix:
            fitted = self._fitted(rows.take(~held), targets[~held], 1)
            judged = rows.take(held)
            flags = np.full(int(held.sum()), seen)
            found = [one.predict(judged, flags) for one in fitted]
            return targets[held].T - np.array(found)

        def held_out(key: str, *, seen: bool) -> Column:
            groups = training.group(key)
            return out_of_fold(
                groups,
                lambda held: residuals(held, seen=seen),
                folds=FOLDS,
                seed=self.seed,
                columns=len(TIMES),
            ).ravel()

        seen = LogQuantiles.of(held_out("deployment", seen=True), labels)
        # Nothing is left to fit where the only device, or the only model, is held out.
        keys = [key for key in ("device", "model") if len(np.unique(training.group(key))) > 1]
        if not keys:
            return Intervals(seen, LogQuantiles())
        others = np.concatenate([held_out(key, seen=False) for key in keys])
        return Intervals(seen, LogQuantiles.of(others, np.concatenate([labels] * len(keys))))

    def _limits(self, query: Query, state: SteadyState, shape: Column) -> tuple[Limit, ...]:
        deployment, load = query.deployment, query.deployment.load
        lines = [Limit(line, severity="outside") for line in _model_lines(query)]
        if self.ranges is not None:
            checked = [SHAPE.index(name) for name in CHECKED]
            ranges = FeatureRange(CHECKED, self.ranges.low[checked], self.ranges.high[checked])
            lines += ranges.outside(shape[checked])
            if load.concurrency is None:
                lines.append(Limit("the training set has closed loops only, no Poisson arrivals"))
            if query.device not in self.known:
                lines.append(Limit("serving was measured on other devices", severity="transfer"))
            if sizes(deployment) not in self.models:
                lines.append(Limit("serving was measured with other models", severity="transfer"))
        if deployment.model.vision is not None:
            images = "prompts are text: encoding images is not part of the times"
            lines.append(Limit(images, severity="note"))
        if state.overload:
            rate = f"{state.requests_per_s:.3g}"
            lines.append(
                Limit(f"requests arrive faster than {rate} a second, which is what is answered")
            )
        elif state.held:
            lines.append(Limit("requests wait for a place in the engine", severity="note"))
        if not state.fits:
            need = "the answer is as if weights and a sequence fitted the memory"
            lines.append(Limit(need, metric="peak_memory_mib"))
        return tuple(lines)


def sizes(deployment: LlmDeployment) -> Sizes:
    """What identifies a model: its layers, width, and total and active parameters."""
    model = deployment.model
    return (len(model.layers), model.hidden_size, *parameter_counts(model))


def stratum(deployment: LlmDeployment) -> str:
    """Class of deployments that share an offset of a device: model and engine."""
    return "-".join([deployment.engine.name, *map(str, sizes(deployment))])


def _strata(metric: str, rows: DeploymentRows) -> Names:
    """Stratum of a time of each of n deployments: whether many prompts may start together."""
    return np.where(rows.burst >= MANY, f"{metric}, many in flight", metric)


def _model_lines(query: Query) -> tuple[str, ...]:
    return Sheet.of(query.device).substitutes(query.deployment.model)


def _side(bounds: Sequence[Matrix], end: int) -> Matrix:
    """Low (`end` 0) or high (1) log bounds of both times, shape (n, 2)."""
    return np.column_stack([one[:, end] for one in bounds])


def _metrics(
    queries: Sequence[Query],
    states: Sequence[SteadyState],
    rows: DeploymentRows,
    tpot: Column,
    ttft: Column,
) -> dict[str, Column]:
    """Metric -> (n,) values from both times in seconds, by Little's law."""
    loads = [query.deployment.load for query in queries]
    output = np.array([load.output_tokens for load in loads])
    devices = np.array([query.deployment.devices for query in queries], dtype=np.float64)
    latency = ttft + np.maximum(output - 1.0, 0.0) * tpot
    in_flight = np.array([load.concurrency or np.nan for load in loads])
    arrivals = np.array([state.requests_per_s for state in states])
    rate = np.where(np.isnan(in_flight), arrivals, in_flight / latency)
    return {
        "tpot_ms": 1e3 * tpot,
        "ttft_ms": 1e3 * ttft,
        "ttft_service_ms": 1e3 * ttft * rows.service_share,
        "request_latency_ms": 1e3 * latency,
        "requests_per_s": rate,
        "tokens_per_s": rate * output,
        "tokens_per_s_per_device": rate * output / devices,
    }
