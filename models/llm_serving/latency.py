"""Latencies and rates of deployed language models.

Time to the first token and time for each further token are the closed form times a correction that
is fitted to measured serving runs. Rates and the time of a request follow from the two by Little's
law. Unfitted, the closed form answers alone, without intervals.
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
"""Prompts on average before a request's own, from which on intervals are calibrated on long queues.
From half to twice as many, intervals change from those of few to those of many."""
TIMES: Final = tuple(metric for metric, _, _ in FORMS)
SERVED: Final = 0.5
"""Share of the time to the first token that is not queueing, below which its error counts less: how
long prompts queue in an overloaded server says little about other loads."""
MOST_OF_ONE: Final = 0.4
"""Log error of a device that one support row can show; n rows can show sqrt(n) as much."""
SETTINGS: Final = 0.1
"""Standard deviation, as a logarithm, of runs of a deployment that differ in what no run names."""
WHOLE: Final = {"request_latency_ms": 1.0, "requests_per_s": -1.0, "tokens_per_s": -1.0}
"""Metrics of whole requests -> sign of the logarithm that grows with their time."""
FOLDS: Final = 5
FEWEST_ROWS: Final = 10
"""Fewest rows that the calibration is fitted on; with fewer, nothing is predicted with it."""
SUPPORT: Final[Mapping[str, tuple[float, float]]] = {
    "log_input_tokens": (6.0, 1.2),
    "log_sequences": (2.5, 1.4),
    "log_devices": (1.0, 1.0),
    "log_active_parameters": (23.2, 1.0),
}
"""Features of the errors on a device -> centre and spread, about those of `llm_inference_bench`."""
CHECKED: Final = ("log_input_tokens", "log_output_tokens", "log_sequences", "log_tensor")
"""Features whose ranges are checked for limits."""
NEAR: Final = log(4.0)
"""Distance of a logarithm from its range up to which boosters are trusted to carry over."""
SPREAD: Final = ("log_tensor", "log_attention_data", "log_prefill_ranks", "log_devices")
"""Features outside whose ranges intervals are wider: over how many devices a model is spread."""
BEYOND: Final = 0.1
"""Distance of a logarithm from its range up to which it counts as inside."""
WIDER: Final = 2.0
"""Factor on the log bounds of such deployments."""
OVERLOADED: Final = Limit("by the closed form, requests arrive faster than they are answered")
TOO_LARGE: Final = Limit(
    "the answer is as if weights and a sequence fitted the memory", metric="peak_memory_mib"
)
IMAGES: Final = Limit("prompts are text: encoding images is not part of the times", severity="note")


@dataclass(frozen=True)
class LlmLatency(StoredPredictor):
    """Time to the first token, time per token, and rates of a deployed language model.

    Attributes:
        seed: determines the boosters' seeds and the folds of the calibration.
        bag: number of boosters for each time.
        trees: number of boosting rounds.
        calibrated: whether `fit` also calibrates intervals, which costs fifteen times as much.
        corrections: fitted predictions of the times in the order of `FORMS`; empty if unfitted.
        intervals: bounds of log(measured / predicted), in strata by load and engine (`_strata`).
        known: what the runs of the training set have.
        ranges: ranges of the features of the training set; None if unfitted.
        support: errors of each time on devices that were adapted to.
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
                `device` and of one `model` (groups) are held out together in the calibration. Those
                with drafted tokens train nothing: they follow from others (`_log_seconds`).
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

        A rate, or the time of a whole request, stands for both times where they were not measured.
        The rows of a device replace its former ones.
        """
        if not len(measurements):
            return self
        queries = measurements.queries
        rows, _ = _rows(queries)
        found = self._log_seconds(queries, rows)
        share = _service_share(found, rows)
        whole = _slower(measurements, metrics_of(Loads.of(queries), share, *np.exp(found.T)))
        devices, engines, points = _points(queries, rows)
        support = []
        for own, metric, predicted in zip(self.support, TIMES, found.T, strict=True):
            with np.errstate(invalid="ignore", divide="ignore"):
                errors = np.log(measurements.column(metric) / 1e3) - predicted
            errors = np.where(np.isnan(errors), whole, errors)
            if metric == "ttft_ms":
                errors = errors * np.minimum(share / SERVED, 1.0)
            for own_rows in rows_by([device.name for device in devices]).values():
                most = MOST_OF_ONE * np.sqrt(np.isfinite(errors[own_rows]).sum())
                errors[own_rows] = np.clip(errors[own_rows], -most, most)
            support.append(own.updated(errors, devices, engines, points, comparable=True))
        return replace(self, support=tuple(support))

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` deployments that are most informative to measure."""
        if not queries:
            return []
        return suggest_for_errors(_points(queries, _rows(queries)[0])[2], count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals and limits, in the order of the queries.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        if not queries:
            return Predictions({metric: np.zeros(0) for metric in self.metrics})
        rows, states = _rows(queries)
        logs = self._log_seconds(queries, rows)
        offsets, deviations = self._offsets(queries, rows)
        logs, share = _shifted(logs, offsets, rows)
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
        # The factor was measured on rates alone, so it does not widen the time to the first token.
        bounds[0] *= np.where(seen, 1.0, width_of_makers(queries))[:, None]
        bounds[0][:, 1] += np.where(seen, 0.0, self.known.slower(queries, tpot))
        bounds[1] = _less_of_what_waits(bounds[1], np.maximum(rows.together, 1.0 - share))
        bounds = [_measured_here(*one, enough) for one in zip(bounds, deviations, strict=True)]
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

        Settings that no measured run varies change the times by the ratio of the closed forms, and
        so does a number format without runs, of a model that has some in another, the time per
        token: so fewer bytes are no slower. The time to the first token does not carry over.
        """
        if not self.corrections:
            return _closed_form(rows)
        usual = [*map(with_measured_settings, queries)]
        found = self._by_ratio(queries, rows, usual)
        others = self.known.in_measured_formats(usual)
        if not all(map(is_, others, usual)):
            found[:, 0] = self._by_ratio(queries, rows, others)[:, 0]
        return found

    def _by_ratio(
        self, queries: Sequence[Query], rows: DeploymentRows, others: Sequence[Query]
    ) -> Matrix:
        """Logarithms of both times of n deployments, from those of others and the closed form of
        both, (n, 2).
        """
        known = self.known.have(others)
        if all(map(is_, others, queries)):
            return self._of_times(rows, known)
        plain, _ = _rows(others)
        return np.asarray(self._of_times(plain, known) + _closed_form(rows) - _closed_form(plain))

    def has_runs(self, query: Query) -> bool:
        """Whether runs like a deployment were measured: in the training set, or by its user."""
        if self._seen([query])[0]:
            return True
        if not self._has_enough(query.device):
            return False
        _, deviations = self._offsets([query], _rows([query])[0])
        return bool(np.isfinite(deviations[0, 0]))

    def _has_enough(self, device: Device) -> bool:
        """Whether there are enough rows of a device for intervals and evidence of its own."""
        return self.support[0].rows(device) >= ENOUGH_ROWS

    def _of_times(self, rows: DeploymentRows, known: tuple[Mask, Mask]) -> Matrix:
        """Logarithms of both times by their corrections, shape (n, 2)."""
        pairs = zip(self.corrections, known, strict=True)
        return np.column_stack([one.predict(rows, own) for one, own in pairs])

    def _offsets(self, queries: Sequence[Query], rows: DeploymentRows) -> tuple[Matrix, Matrix]:
        """Errors of both times, and their deviations, by the rows of `adapt`; (2, n) each.

        Zero and NaN on devices that were not adapted to; the deviation is infinite far from them.
        """
        if not any(own.devices for own in self.support):
            return np.zeros((2, len(queries))), np.full((2, len(queries)), np.nan)
        points = _points(queries, rows)
        found = [own.correction(*points) for own in self.support]
        return np.array([mean for mean, _ in found]), np.array([spread for _, spread in found])

    def _seen(self, queries: Sequence[Query]) -> Mask:
        """Whether runs like n deployments, and with their settings, are in the training set."""
        seen = np.zeros(len(queries), dtype=np.bool_)
        groups = alike_at_any_load(queries).values()
        firsts = [queries[rows[0]] for rows in groups]
        like_runs = self.known.have(firsts)[0] & self.known.have_settings(firsts)
        for rows, own_seen in zip(groups, like_runs, strict=True):
            seen[rows] = own_seen
        return seen

    def _width(self, rows: DeploymentRows) -> Matrix:
        """Factor on the log bounds of n deployments, shape (n, 1)."""
        if self.ranges is None:
            return np.ones((len(rows), 1))
        ranges = self._ranges(SPREAD)
        features = np.column_stack([rows.shape, rows.figures])[:, _positions(SPREAD)]
        outside = np.abs(ranges.clip(features) - features) > BEYOND
        return np.where(outside.any(axis=1, keepdims=True), WIDER, 1.0)

    def _ranges(self, names: Sequence[str]) -> FeatureRange:
        """Ranges of some features of the training set, which there must be."""
        assert self.ranges is not None
        at = _positions(names)
        return FeatureRange(tuple(names), self.ranges.low[at], self.ranges.high[at])

    def _intervals(
        self, training: Measurements, rows: DeploymentRows, targets: Matrix
    ) -> Intervals:
        """Bounds from held-out deployments, and from held-out devices and models together."""
        labels = np.concatenate([_strata(metric, rows) for metric in TIMES])

        def residuals(held: Mask, key: str) -> Matrix:
            # Boosters on all features have no part in answers about other models.
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
            left = targets[held] - fitted._of_times(rows.take(held), known)
            return np.asarray(np.where((key != "deployment") | known[0][:, None], left, np.nan).T)

        def held_out(key: str) -> Column:
            return out_of_fold(
                training.group(key),
                lambda held: residuals(held, key),
                folds=FOLDS,
                seed=self.seed,
                columns=len(TIMES),
            ).ravel()

        seen = LogQuantiles.of(held_out("deployment"), labels)
        # Nothing is left to fit where the only device, or the only model, is held out.
        keys = [key for key in ("device", "model") if len(np.unique(training.group(key))) > 1]
        if not keys:
            return Intervals(seen, LogQuantiles())
        others = np.concatenate([held_out(key) for key in keys])
        # Runs of one deployment that differ in their load count as one.
        alike = np.tile(training.group("deployment"), len(TIMES) * len(keys))
        again = np.tile(labels, len(keys))
        return Intervals(seen, LogQuantiles.of(others, again, groups=alike))

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
            states: the state of each in closed form.
            rows: the same deployments.
            token_s: (n,) time per token of each, seconds.
            of_user: (n,) whether runs of a user on the device carry the answer.
        """
        outside: Sequence[tuple[Limit, ...]] = [()] * len(queries)
        if self.ranges is not None:
            # Where no boosters take part, the closed form has no range.
            found = self._ranges(CHECKED).outside_each(rows.shape[:, _positions(CHECKED)])
            known, _ = self.known.have(queries)
            outside = [
                tuple(map(_by_distance, own)) if is_known else ()
                for own, is_known in zip(found, known.tolist(), strict=True)
            ]
        every: list[tuple[Limit, ...]] = [()] * len(queries)
        short = (token_s < self.known.least_s(queries)).tolist()
        of_states = {state: _limits_of(state) for state in set(states)}
        for same in alike_at_any_load(queries).values():
            first = queries[same[0]]
            substitutes = [Limit(line, severity="note") for line in _model_lines(first)]
            unmeasured = {
                own: self.known.limits_at_any_load(first, of_user=own) if self.ranges else []
                for own in set(of_user[same].tolist())
            }
            images = [] if first.deployment.model.vision is None else [IMAGES]
            for row in same:
                load = [] if self.ranges is None else self.known.limits_of_load(queries[row])
                time = [self.known.too_short()] if short[row] else []
                others = unmeasured[bool(of_user[row])]
                own = (*substitutes, *outside[row], *load, *time, *others, *images)
                every[row] = (*own, *of_states[states[row]])
        return every


def _by_distance(limit: Limit) -> Limit:
    """A limit about a logarithm outside its range, which is a transfer where it lies near."""
    assert limit.value is not None and limit.low is not None and limit.high is not None
    is_near = max(limit.low - limit.value, limit.value - limit.high) <= NEAR
    return replace(limit, severity="transfer") if is_near else limit


def _rows(queries: Sequence[Query]) -> tuple[DeploymentRows, list[State]]:
    """Rows of n deployments, each with one worker where workers have nothing in common."""
    return DeploymentRows.of([of_one_worker(query) for query in queries])


def _points(
    queries: Sequence[Query], rows: DeploymentRows
) -> tuple[list[Device], list[str], Matrix]:
    """Devices, names of engines and features, (n, features), of errors on a device."""
    features = np.column_stack([rows.shape, rows.figures])[:, _positions([*SUPPORT])]
    points = Standardizer(*np.array([*SUPPORT.values()]).T).apply(features, len(SUPPORT))
    engines: list[str] = [query.deployment.engine.name for query in queries]
    return [query.device for query in queries], engines, points


def _shifted(logs: Matrix, offsets: Matrix, rows: DeploymentRows) -> tuple[Matrix, Column]:
    """Logarithms of both times, (n, 2), with their errors, (2, n), and the share of service, (n,).

    The error of the time to the first token is one of its part without queueing.
    """
    share = _service_share(logs, rows)
    served = share * np.exp(offsets[1])
    whole = served + 1.0 - share
    return np.column_stack([logs[:, 0] + offsets[0], logs[:, 1] + np.log(whole)]), served / whole


def _measured_here(bounds: Matrix, deviation: Column, enough: Mask) -> Matrix:
    """Log bounds, (n, 2), by the deviation of errors on the device, (n,), where that is finite.

    They are not narrower than `bounds` on devices without enough rows.
    """
    half = HALF_WIDTH * np.hypot(deviation, SETTINGS)
    own = np.column_stack([-half, half])
    wider = np.column_stack([np.fmin(own[:, 0], bounds[:, 0]), np.fmax(own[:, 1], bounds[:, 1])])
    own = np.where(enough[:, None], own, wider)
    return np.where(np.isfinite(half)[:, None], own, bounds)


def _service_share(logs: Matrix, rows: DeploymentRows) -> Column:
    """Share of the time to the first token that is not queueing, (n,).

    No run measures that part under load, so it is that of the closed form.

    Args:
        logs: (n, 2) logarithms of both times.
        rows: n deployments.
    """
    return np.asarray(np.minimum(rows.service / np.exp(logs[:, 1]), 1.0))


def _slower(measurements: Measurements, predicted: Mapping[str, Column]) -> Column:
    """Logarithms of measured over predicted time of whole requests, (n,); NaN where unknown."""
    found = np.full(len(measurements), np.nan)
    for metric, sign in WHOLE.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            one = sign * np.log(measurements.column(metric) / predicted[metric])
        found = np.where(np.isnan(found), one, found)
    return found


def _less_of_what_waits(bounds: Matrix, waits: Column) -> Matrix:
    """Log bounds of times to the first token, of which only a share may be queueing.

    In the runs that calibrate them prompts start together, and the upper bounds are those of how
    long they queue. Of a request that waits for none, the upper bound is as far as the lower one.

    Args:
        bounds: (n, 2) calibrated log bounds.
        waits: (n,) how far prompts queue, 0 to 1.
    """
    low, high = bounds.T
    alone = np.minimum(high, -low)
    return np.column_stack([low, alone + waits * (high - alone)])


def summed_times(queries: Sequence[Query], worker_of: WorkerOf) -> dict[str, Column]:
    """Metric -> its value for n deployments in closed form, without fitted factors.

    Args:
        queries: the deployments.
        worker_of: gives the times of iterations of their workers.
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
    """Log bounds of a time of n deployments, (n, 2), which do not jump where many start together.

    Args:
        intervals: calibrated on the strata of `_strata`.
        metric: the time.
        rows: n deployments.
        seen: (n,) whether runs like these are in the training set.
    """
    few, many = (intervals.log_ends(names, seen) for names in _strata_of(metric, rows))
    share = np.clip(np.log2(np.maximum(rows.burst, 1.0) * 2.0 / MANY) / 2.0, 0.0, 1.0)[:, None]
    return np.asarray(few + share * (many - few))


def _strata(metric: str, rows: DeploymentRows) -> Names:
    """Stratum of a time of each of n deployments in the calibration."""
    few, many = _strata_of(metric, rows)
    return np.where(rows.burst >= MANY, many, few)


def _strata_of(metric: str, rows: DeploymentRows) -> tuple[Names, Names]:
    """Strata of a time of n deployments if few, and if many prompts start together.

    That of few is by engine for the time to the first token: left out with its model, 90 % of the
    runs of vLLM lie within a factor of 3.4.
    """
    few = np.full(len(rows), metric)
    if metric == "ttft_ms":
        names = np.array(["", *(f" {engine}" for engine in ENGINES)])
        which = rows.engine @ np.arange(1, len(ENGINES) + 1)
        few = np.char.add(metric, names[which.astype(np.intp)])
    return few, np.full(len(rows), f"{metric}, many in flight")


def _positions(names: Sequence[str]) -> list[int]:
    """Positions of features among those of `SHAPE` and `FIGURES`."""
    return [(*SHAPE, *FIGURES).index(name) for name in names]


def _limits_of(state: State) -> list[Limit]:
    lines = [OVERLOADED] if state.overload else []
    return lines if state.fits else [*lines, TOO_LARGE]


def _model_lines(query: Query) -> tuple[str, ...]:
    return Sheet.of(query.device).substitutes(query.deployment.model)


def _side(bounds: Sequence[Matrix], end: int) -> Matrix:
    """Low (`end` 0) or high (1) log bounds of both times, shape (n, 2)."""
    return np.column_stack([one[:, end] for one in bounds])
