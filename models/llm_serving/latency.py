"""Latency and throughput of deployed language models.

Time to first token and time per output token are the closed form times a residual correction,
fitted to measured serving runs. Request latency and throughput follow from the two by Little's law.
Unfitted, the predictor answers with the closed form, without intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from operator import is_
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, rows_by
from forerun.data.device import Device
from forerun.data.level import HALF_WIDTH
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_serving.any_load import WorkerOf
from forerun.features.llm_serving.comparable import (
    alike_at_any_load,
    of_one_worker,
    with_measured_settings,
)
from forerun.features.llm_serving.features import ENGINES, FIGURES, SHAPE, DeploymentRows, State
from forerun.features.llm_serving.operators import Sheet
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP
from forerun.models.adaptation.support_set import suggest_for_errors
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.limit import Limit
from forerun.models.llm_serving.correction import FORMS, Correction, as_started
from forerun.models.llm_serving.domain import KnownRuns, width_of_makers
from forerun.models.llm_serving.littles_law import Loads, metrics_of
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

MANY: Final = 16.0
"""Mean number of prompts queued ahead of a request from which calibration uses the stratum of long
queues. From here to four times this number, intervals blend from one stratum to the other."""
TIMES: Final = tuple(metric for metric, _, _ in FORMS)
SERVED: Final = 0.5
"""Share of service in the time to first token below which its error is down-weighted: how long
prompts queue in an overloaded server says little about other loads."""
MOST_OF_ONE: Final = 0.4
"""Largest log error of a device that one support row can show; n rows can show sqrt(n) times it."""
SETTINGS: Final = 0.1
"""Log standard deviation between runs of a deployment that differ only in unrecorded settings."""
WHOLE: Final = {"request_latency_ms": 1.0, "requests_per_s": -1.0, "tokens_per_s": -1.0}
"""Request-level metric -> sign of its logarithm's dependence on request latency."""
FOLDS: Final = 5
FEWEST_ROWS: Final = 10
"""Fewest training rows of a calibration fold; smaller folds give no residuals."""
SUPPORT: Final[Mapping[str, tuple[float, float]]] = {
    "log_input_tokens": (6.0, 1.2),
    "log_sequences": (2.5, 1.4),
    "log_devices": (1.0, 1.0),
    "log_active_parameters": (23.2, 1.0),
}
"""Feature of the errors on a device -> centre and scale, about those of `llm_inference_bench`."""
CHECKED: Final = ("log_input_tokens", "log_output_tokens", "log_sequences", "log_tensor")
"""Features checked against the ranges of the training set."""
NEAR: Final = log(4.0)
"""Largest distance of a log feature from its range at which boosters are trusted to transfer."""
SPREAD: Final = ("log_tensor", "log_attention_data", "log_prefill_ranks", "log_devices")
"""Features of how a model is spread over devices; outside of their ranges, intervals are wider."""
BEYOND: Final = 0.1
"""Distance of a log feature from its range up to which it counts as inside."""
WIDER: Final = 2.0
"""Factor on the log bounds of deployments outside of these ranges."""
OVERLOADED: Final = Limit("by the closed form, requests arrive faster than they are answered")
TOO_LARGE: Final = Limit(
    "the answer assumes that weights and one sequence fit in memory", metric="peak_memory_mib"
)
IMAGES: Final = Limit("prompts are text: the times exclude encoding images", severity="note")


@dataclass(frozen=True)
class LlmLatency(StoredPredictor):
    """Time to the first token, time per token, and rates of a deployed language model.

    Attributes:
        seed: determines the boosters' seeds and the calibration folds.
        bag: number of boosters for each time.
        trees: number of boosting rounds.
        calibrated: whether `fit` also calibrates intervals, which costs fifteen times as much.
        corrections: fitted corrections of the times, in the order of `FORMS`; empty if unfitted.
        intervals: bounds of log(measured / predicted), in strata by load and engine (`_strata`).
        known: what the runs of the training set cover.
        ranges: feature ranges of the training set; None if unfitted.
        support: errors of each time on devices that the predictor was adapted to.
    """

    seed: int = field(default=0, metadata=SETTING)
    bag: int = field(default=1, metadata=SETTING)
    trees: int = field(default=1500, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    corrections: tuple[Correction, ...] = ()
    intervals: Intervals | None = None
    known: KnownRuns = field(default_factory=KnownRuns)
    ranges: FeatureRange | None = None
    support: tuple[SupportGP, ...] = (SupportGP(), SupportGP())
    name: ClassVar[str] = "llm_latency"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of a deployment": (*SHAPE, *FIGURES)
    }

    @property
    def metrics(self) -> tuple[str, ...]:
        """Request-level times, and throughput of all devices together and per device."""
        return (
            *("tpot_ms", "ttft_ms", "ttft_service_ms", "request_latency_ms"),
            *("requests_per_s", "tokens_per_s", "tokens_per_s_per_device"),
        )

    def answers(self, query: Query) -> bool:
        """Whether the query is a deployed language model on GPUs with a spec sheet."""
        device = query.device
        return query.workload.kind == "llm_deployment" and device.kind == "gpu" and device.has_sheet

    def fit(self, measurements: Measurements) -> Self:
        """Fit both times to rows that have both; without such rows, nothing changes.

        Args:
            measurements: rows with `ttft_ms` and `tpot_ms`. Calibration holds out the rows of each
                `deployment`, `device` and `model` (groups) together. Rows with speculative decoding
                are left out: those predictions follow from others (`_log_seconds`).
        """
        logs = np.column_stack([np.log(measurements.column(metric) / 1e3) for metric in TIMES])
        drafted = [bool(query.deployment.engine.draft_tokens) for query in measurements.queries]
        kept = np.isfinite(logs).all(axis=1) & ~np.array(drafted, dtype=np.bool_)
        if not kept.any():
            return self
        training, targets = measurements.take(kept), logs[kept]
        rows, _ = _rows(training.queries)
        names = (*SHAPE, *FIGURES)
        fitted = replace(
            self,
            corrections=self._fitted(rows, targets, self.bag),
            known=KnownRuns.of(training.queries, np.exp(targets[:, 0])),
            ranges=FeatureRange.of(names, np.column_stack([rows.shape, rows.figures])),
            support=(SupportGP(), SupportGP()),
        )
        if not self.calibrated:
            return replace(fitted, intervals=None)
        return replace(fitted, intervals=self._intervals(training, rows, targets))

    def adapt(self, measurements: Measurements) -> Self:
        """Learn the errors of both times on the devices of these rows, by engine.

        Where a row lacks a time, the error of its request latency or throughput stands in. The rows
        of a device replace its earlier ones.
        """
        if not len(measurements):
            return self
        queries = measurements.queries
        rows, _ = _rows(queries)
        logs = self._log_seconds(queries, rows)
        share = _service_share(logs, rows)
        values = metrics_of(Loads.of(queries), share, *np.exp(logs.T))
        whole = request_errors(measurements, values)
        devices, engines, points = _points(queries, rows)
        support = []
        for process, metric, predicted in zip(self.support, TIMES, logs.T, strict=True):
            with np.errstate(invalid="ignore", divide="ignore"):
                errors = np.log(measurements.column(metric) / 1e3) - predicted
            errors = np.where(np.isnan(errors), whole, errors)
            if metric == "ttft_ms":
                errors = errors * np.minimum(share / SERVED, 1.0)
            for device_rows in rows_by([device.name for device in devices]).values():
                largest = MOST_OF_ONE * np.sqrt(np.isfinite(errors[device_rows]).sum())
                errors[device_rows] = np.clip(errors[device_rows], -largest, largest)
            support.append(process.updated(errors, devices, engines, points, comparable=True))
        return replace(self, support=tuple(support))

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` most informative deployments to measure."""
        if not queries:
            return []
        return suggest_for_errors(_points(queries, _rows(queries)[0])[2], count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals and limits, in the order of the queries.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's spec sheet lacks a figure.
        """
        if not queries:
            return Predictions({metric: np.zeros(0) for metric in self.metrics})
        rows, states = _rows(queries)
        logs = self._log_seconds(queries, rows)
        offsets, deviations = self._offsets(queries, rows)
        logs, share = _with_offsets(logs, offsets, rows)
        tpot, ttft = np.exp(logs).T
        loads = Loads.of(queries)
        values = metrics_of(loads, share, tpot, ttft)
        enough = np.array([self._has_enough(query.device) for query in queries])
        limits = self._limits(queries, states, rows, tpot, enough & np.isfinite(deviations[0]))
        if self.intervals is None:
            return Predictions(values, limits=limits)
        seen = self._seen(queries)
        width = self._width(rows)
        bounds = [width * _log_ends(self.intervals, metric, rows, seen) for metric in TIMES]
        # The factor was measured on throughput alone, so it does not widen the time to first token.
        bounds[0] *= np.where(seen, 1.0, width_of_makers(queries))[:, None]
        bounds[0][:, 1] += np.where(seen, 0.0, self.known.slower(queries, tpot))
        bounds[1] = _without_queueing(bounds[1], np.maximum(rows.together, 1.0 - share))
        bounds = [_adapted(*one, enough) for one in zip(bounds, deviations, strict=True)]
        low, high = (
            metrics_of(loads, share, *(np.exp(logs + _side(bounds, end)).T)) for end in (0, 1)
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

    def _log_seconds(self, queries: Sequence[Query], rows: DeploymentRows) -> Matrix:
        """Logarithms of both times without the support set's correction, shape (n, 2).

        Settings that no measured run varies scale the times by the ratio of the closed forms. If
        the model was only measured in another number format, the time per output token scales the
        same way, which keeps fewer bytes from being slower. The time to first token does not
        transfer between formats.
        """
        if not self.corrections:
            return _closed_form(rows)
        measured = [*map(with_measured_settings, queries)]
        logs = self._by_ratio(queries, rows, measured)
        others = self.known.in_measured_formats(measured)
        if not all(map(is_, others, measured)):
            logs[:, 0] = self._by_ratio(queries, rows, others)[:, 0]
        return logs

    def _by_ratio(
        self, queries: Sequence[Query], rows: DeploymentRows, others: Sequence[Query]
    ) -> Matrix:
        """Logarithms of both times, (n, 2): those of others times the ratio of closed forms."""
        known = self.known.have(others)
        if all(map(is_, others, queries)):
            return self._corrected(rows, known)
        base, _ = _rows(others)
        return np.asarray(self._corrected(base, known) + _closed_form(rows) - _closed_form(base))

    def has_runs(self, query: Query) -> bool:
        """Whether runs like a deployment were measured, in the training set or by the user."""
        if self._seen([query])[0]:
            return True
        if not self._has_enough(query.device):
            return False
        _, deviations = self._offsets([query], _rows([query])[0])
        return bool(np.isfinite(deviations[0, 0]))

    def _has_enough(self, device: Device) -> bool:
        """Whether a device has enough support rows for its own intervals."""
        return self.support[0].rows(device) >= ENOUGH_ROWS

    def _corrected(self, rows: DeploymentRows, known: tuple[Mask, Mask]) -> Matrix:
        """Logarithms of both times by the fitted corrections, shape (n, 2)."""
        pairs = zip(self.corrections, known, strict=True)
        return np.column_stack([one.predict(rows, is_known) for one, is_known in pairs])

    def _offsets(self, queries: Sequence[Query], rows: DeploymentRows) -> tuple[Matrix, Matrix]:
        """Log errors of both times and their standard deviations, from `adapt`; (2, n) each.

        Zero and NaN on devices without support rows; the deviation is infinite far from all rows.
        """
        if not any(process.devices for process in self.support):
            return np.zeros((2, len(queries))), np.full((2, len(queries)), np.nan)
        points = _points(queries, rows)
        errors = [process.correction(*points) for process in self.support]
        return np.array([mean for mean, _ in errors]), np.array([spread for _, spread in errors])

    def _seen(self, queries: Sequence[Query]) -> Mask:
        """Whether the training set has runs like each deployment, with its settings, (n,)."""
        seen = np.zeros(len(queries), dtype=np.bool_)
        groups = alike_at_any_load(queries).values()
        firsts = [queries[rows[0]] for rows in groups]
        like_runs = self.known.have(firsts)[0] & self.known.have_settings(firsts)
        for rows, has_runs in zip(groups, like_runs, strict=True):
            seen[rows] = has_runs
        return seen

    def _width(self, rows: DeploymentRows) -> Matrix:
        """Factor on the log bounds, by how the model is spread over devices, shape (n, 1)."""
        if self.ranges is None:
            return np.ones((len(rows), 1))
        ranges = self._ranges(SPREAD)
        features = np.column_stack([rows.shape, rows.figures])[:, _positions(SPREAD)]
        outside = np.abs(ranges.clip(features) - features) > BEYOND
        return np.where(outside.any(axis=1, keepdims=True), WIDER, 1.0)

    def _ranges(self, names: Sequence[str]) -> FeatureRange:
        """Ranges of some features; the predictor must be fitted."""
        assert self.ranges is not None
        columns = _positions(names)
        return FeatureRange(tuple(names), self.ranges.low[columns], self.ranges.high[columns])

    def _intervals(
        self, training: Measurements, rows: DeploymentRows, targets: Matrix
    ) -> Intervals:
        """Conformal bounds from held-out deployments, and from held-out devices and models."""
        labels = np.concatenate([_strata(metric, rows) for metric in TIMES])

        def residuals(held: Mask, key: str) -> Matrix:
            # Predictions for unseen models never use the full-feature boosters.
            fit = self if key != "model" else replace(self, trees=1)
            if (~held).sum() < FEWEST_ROWS:
                return np.full((len(TIMES), int(held.sum())), np.nan)
            others = training.take(~held)
            fitted = replace(
                fit,
                corrections=fit._fitted(rows.take(~held), targets[~held], 1),
                known=KnownRuns.of(others.queries, np.exp(targets[~held, 0])),
            )
            known = fitted.known.have(training.take(held).queries)
            errors = targets[held] - fitted._corrected(rows.take(held), known)
            return np.asarray(np.where((key != "deployment") | known[0][:, None], errors, np.nan).T)

        def held_out(key: str) -> Column:
            return out_of_fold(
                training.group(key),
                lambda held: residuals(held, key),
                folds=FOLDS,
                seed=self.seed,
                columns=len(TIMES),
            ).ravel()

        seen = LogQuantiles.of(held_out("deployment"), labels)
        # Holding out the only device or model would leave no training rows.
        keys = [key for key in ("device", "model") if len(np.unique(training.group(key))) > 1]
        if not keys:
            return Intervals(seen, LogQuantiles())
        others = np.concatenate([held_out(key) for key in keys])
        # Runs of one deployment at several loads count as one.
        deployments = np.tile(training.group("deployment"), len(TIMES) * len(keys))
        strata = np.tile(labels, len(keys))
        return Intervals(seen, LogQuantiles.of(others, strata, groups=deployments))

    def _limits(
        self,
        queries: Sequence[Query],
        states: Sequence[State],
        rows: DeploymentRows,
        token_s: Column,
        of_user: Mask,
    ) -> list[tuple[Limit, ...]]:
        """Limits of n deployments.

        Args:
            queries: the deployments.
            states: the closed-form state of each.
            rows: the same deployments.
            token_s: (n,) time per output token, seconds.
            of_user: (n,) whether the prediction relies on the user's own runs on the device.
        """
        outside: Sequence[tuple[Limit, ...]] = [()] * len(queries)
        if self.ranges is not None:
            # The closed form holds at any range: check only where boosters take part.
            ranges = self._ranges(CHECKED).outside_each(rows.shape[:, _positions(CHECKED)])
            known, _ = self.known.have(queries)
            outside = [
                tuple(map(_by_distance, beyond)) if is_known else ()
                for beyond, is_known in zip(ranges, known.tolist(), strict=True)
            ]
        limits: list[tuple[Limit, ...]] = [()] * len(queries)
        short = (token_s < self.known.least_s(queries)).tolist()
        of_states = {state: _limits_of(state) for state in set(states)}
        for group in alike_at_any_load(queries).values():
            first = queries[group[0]]
            substitutes = [Limit(line, severity="note") for line in _model_lines(first)]
            unmeasured = {
                flag: self.known.limits_at_any_load(first, of_user=flag) if self.ranges else []
                for flag in set(of_user[group].tolist())
            }
            images = [] if first.deployment.model.vision is None else [IMAGES]
            for row in group:
                load = [] if self.ranges is None else self.known.limits_of_load(queries[row])
                time = [self.known.too_short()] if short[row] else []
                others = unmeasured[bool(of_user[row])]
                of_row = (*substitutes, *outside[row], *load, *time, *others, *images)
                limits[row] = (*of_row, *of_states[states[row]])
        return limits


def _by_distance(limit: Limit) -> Limit:
    """Reduce the severity of a limit on a log feature to `transfer` if it is near its range."""
    assert limit.value is not None and limit.low is not None and limit.high is not None
    is_near = max(limit.low - limit.value, limit.value - limit.high) <= NEAR
    return replace(limit, severity="transfer") if is_near else limit


def _rows(queries: Sequence[Query]) -> tuple[DeploymentRows, list[State]]:
    """Rows of n deployments, each reduced to one worker where workers are independent."""
    return DeploymentRows.of([of_one_worker(query) for query in queries])


def _points(
    queries: Sequence[Query], rows: DeploymentRows
) -> tuple[list[Device], list[str], Matrix]:
    """Inputs of the Gaussian processes of errors: devices, engine names, features (n, features)."""
    features = np.column_stack([rows.shape, rows.figures])[:, _positions([*SUPPORT])]
    points = Standardizer(*np.array([*SUPPORT.values()]).T).apply(features, len(SUPPORT))
    engines: list[str] = [query.deployment.engine.name for query in queries]
    return [query.device for query in queries], engines, points


def _with_offsets(logs: Matrix, offsets: Matrix, rows: DeploymentRows) -> tuple[Matrix, Column]:
    """Correct the logarithms of both times, (n, 2), by the errors on a device, (2, n).

    The error of the time to first token applies to its part without queueing. Also returns the
    share of that part, (n,).
    """
    share = _service_share(logs, rows)
    service = share * np.exp(offsets[1])
    total = service + 1.0 - share
    return np.column_stack([logs[:, 0] + offsets[0], logs[:, 1] + np.log(total)]), service / total


def _adapted(bounds: Matrix, deviation: Column, enough: Mask) -> Matrix:
    """Replace log bounds, (n, 2), by those of the errors on the device, where known.

    Args:
        bounds: (n, 2) calibrated log bounds.
        deviation: (n,) standard deviation of the errors on the device; not finite if unknown.
        enough: (n,) whether the device has enough rows for bounds narrower than calibrated ones.
    """
    half = HALF_WIDTH * np.hypot(deviation, SETTINGS)
    adapted = np.column_stack([-half, half])
    low, high = np.fmin(adapted[:, 0], bounds[:, 0]), np.fmax(adapted[:, 1], bounds[:, 1])
    adapted = np.where(enough[:, None], adapted, np.column_stack([low, high]))
    return np.where(np.isfinite(half)[:, None], adapted, bounds)


def _service_share(logs: Matrix, rows: DeploymentRows) -> Column:
    """Share of the time to first token that is not queueing, (n,).

    No run measures that part under load, so it is taken from the closed form.

    Args:
        logs: (n, 2) logarithms of both times.
        rows: n deployments.
    """
    return np.asarray(np.minimum(rows.service / np.exp(logs[:, 1]), 1.0))


def request_errors(measurements: Measurements, predicted: Mapping[str, Column]) -> Column:
    """Log errors of request latency, or of throughput, (n,); NaN if neither was measured."""
    errors = np.full(len(measurements), np.nan)
    for metric, sign in WHOLE.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            one = sign * np.log(measurements.column(metric) / predicted[metric])
        errors = np.where(np.isnan(errors), one, errors)
    return errors


def _without_queueing(bounds: Matrix, queueing: Column) -> Matrix:
    """Narrow the log bounds of the time to first token for requests that queue less.

    In the calibration runs, prompts start together, and the upper bound covers how long they queue.
    Without queueing, the upper bound is as far from the prediction as the lower one.

    Args:
        bounds: (n, 2) calibrated log bounds.
        queueing: (n,) how much prompts queue compared to the calibration runs, 0 to 1.
    """
    low, high = bounds.T
    symmetric = np.minimum(high, -low)
    return np.column_stack([low, symmetric + queueing * (high - symmetric)])


def summed_times(queries: Sequence[Query], worker_of: WorkerOf) -> dict[str, Column]:
    """Metric -> its closed-form value for n deployments, without fitted factors.

    Args:
        queries: the deployments.
        worker_of: returns the iteration times of their workers.
    """
    rows, _ = DeploymentRows.of([of_one_worker(query) for query in queries], worker_of)
    logs = _closed_form(rows)
    share = _service_share(logs, rows)
    return metrics_of(Loads.of(queries), share, *np.exp(logs.T))


def _closed_form(rows: DeploymentRows) -> Matrix:
    """Logarithms of both times without fitted factors, shape (n, 2)."""
    return np.column_stack(
        [as_started(time, np.log(form(np.zeros(k), rows)), rows) for time, form, k in FORMS]
    )


def _log_ends(intervals: Intervals, metric: str, rows: DeploymentRows, seen: Mask) -> Matrix:
    """Log bounds of a time, (n, 2), blended between strata so that they are continuous in load.

    Args:
        intervals: calibrated on the strata of `_strata`.
        metric: the time.
        rows: n deployments.
        seen: (n,) whether the training set has runs like these.
    """
    few, many = (intervals.log_ends(names, seen) for names in _strata_of(metric, rows))
    share = np.clip(np.log2(np.maximum(rows.burst / MANY, 1.0)) / 2.0, 0.0, 1.0)[:, None]
    return np.asarray(few + share * (many - few))


def _strata(metric: str, rows: DeploymentRows) -> Names:
    """Calibration stratum of a time, for n deployments."""
    few, many = _strata_of(metric, rows)
    return np.where(rows.burst >= MANY, many, few)


def _strata_of(metric: str, rows: DeploymentRows) -> tuple[Names, Names]:
    """Strata of a time for n deployments, for short and for long prompt queues.

    The time to first token has strata per engine: with models held out, 90 % of the vLLM runs with
    short queues lie within a factor of 3.4, and those of other engines vary more.
    """
    few = np.full(len(rows), metric)
    if metric == "ttft_ms":
        names = np.array(["", *(f" {engine}" for engine in ENGINES)])
        which = rows.engine @ np.arange(1, len(ENGINES) + 1)
        few = np.char.add(metric, names[which.astype(np.intp)])
    return few, np.char.add(few, ", many in flight")


def _positions(names: Sequence[str]) -> list[int]:
    """Column indices of features among `SHAPE` and `FIGURES`."""
    return [(*SHAPE, *FIGURES).index(name) for name in names]


def _limits_of(state: State) -> list[Limit]:
    lines = [OVERLOADED] if state.overload else []
    return lines if state.fits else [*lines, TOO_LARGE]


def _model_lines(query: Query) -> tuple[str, ...]:
    return Sheet.of(query.device).substitutes(query.deployment.model)


def _side(bounds: Sequence[Matrix], end: int) -> Matrix:
    """Lower (`end` 0) or upper (1) log bounds of both times, shape (n, 2)."""
    return np.column_stack([one[:, end] for one in bounds])
