"""Latency of language models on CPUs with vLLM and llama.cpp, and on GPUs with llama.cpp.

The time of a step is a sum of parts (`forerun.features.llm_serving.processors`), whose costs and
exponents are fitted to measured runs. Bounds on the exponents keep predictions monotone: they never
rise with more bandwidth, faster arithmetic or fewer bits per weight, and never fall with higher
concurrency or longer prompts and contexts. An open number of threads is the fastest one.

Runs on GPUs have one stream on one device. Other loads, splits and micro-batches scale its times by
the ratio of the closed forms of deployments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, groups_of
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.deployment import Pool
from forerun.data.language_models.model import LanguageModel
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.device_bytes import LLAMA_BATCH, USUAL_SEQUENCES
from forerun.features.llm_serving.processors import DRIVERS, PARTS, Part, StepRows, threads_of
from forerun.features.llm_serving.step import WorkerTime
from forerun.models.adaptation.error_process import Offsets
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_serving.domain import MAKER, is_of_other_maker, width_of_makers
from forerun.models.llm_serving.latency import request_errors, summed_times
from forerun.models.llm_serving.littles_law import Loads, metrics_of
from forerun.models.llm_serving.nearby_runs import NearbyRuns, Places
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

METRICS: Final = ("tpot_ms", "ttft_ms")
PULL: Final = 1e-3
"""Weight of the prior costs and exponents, relative to each run."""
SAMPLE: Final = 6000
"""Most runs in one fit; more are subsampled."""
ROUNDS: Final = 4
FAR: Final = 0.3
"""Rounds of reweighted least squares, and the log error above which a run loses weight."""
MANY_LAYERS: Final = 0.2
"""Share of per-layer time, at reference costs, above which a model counts as small."""
MOST_TENSOR: Final = 8
"""Most sockets that share the layers."""
ENGINES: Final = ("vllm", "llama.cpp")
OFFSET_FACTOR: Final = 2.0
"""Factor on the prior deviation of a device's error, to 0.4: that of intervals that span a
factor of 3.7, as for times to first token on GPUs."""
LEFT_OUT: Final = ("family", "model")
"""Groups that calibration holds out."""
FEW_MODELS: Final = Limit(
    "few models were measured with this engine on such devices; intervals come from held-out "
    "models and devices",
    LATENCY,
    "transfer",
)
NOT_AS_RUN: Final = Limit(
    "measured runs have one stream on one device: the effect of more requests, stages or "
    "smaller micro-batches is computed from the spec sheet",
    LATENCY,
)
OTHER_FORMAT: Final = Limit(
    "measured runs have 16-bit weights with vLLM and q4_k_m with llama.cpp: other formats "
    "change only the bytes",
    LATENCY,
)


@dataclass(frozen=True)
class Step:
    """Fitted costs of the parts of one time.

    Attributes:
        values: for each part, the logarithm of its cost and its exponents of `DRIVERS`.
    """

    values: tuple[float, ...]

    @classmethod
    def fit(
        cls, parts: Sequence[Part], rows: StepRows, seconds: Column, families: Names, seed: int
    ) -> Self:
        """Fit by least squares on logarithms, regularised towards prior costs and exponents.

        Args:
            parts: the parts to fit.
            rows: n runs.
            seconds: (n,) measured times, seconds.
            families: (n,) labels; a family weighs as much as the square root of its run count.
            seed: seed of the subsample.
        """
        from scipy.optimize import least_squares

        few = np.random.default_rng(seed).permutation(len(seconds))[:SAMPLE]
        rows, target = rows.take(few), np.log(seconds[few])
        _, group, counts = np.unique(families[few], return_inverse=True, return_counts=True)
        weights = 1.0 / np.sqrt(counts[group])
        weights /= weights.mean()
        start, low, high = _bounds(parts)
        free = high > low
        pull = np.sqrt(PULL * len(few))
        slopes = np.concatenate([np.ones((len(few), 1)), -rows.drivers], axis=1)

        def with_fixed(values: Column) -> Column:
            every = start.copy()
            every[free] = values
            return np.asarray(every)

        solution = start[free]
        roots = np.sqrt(weights)

        def errors(values: Column) -> Column:
            residuals = np.log(_seconds(rows, with_fixed(values)).sum(axis=1)) - target
            return np.append(residuals * roots, pull * (values - start[free]))

        def jacobian(values: Column) -> Matrix:
            times = _seconds(rows, with_fixed(values))
            shares = times / times.sum(axis=1, keepdims=True) * roots[:, None]
            slope = (shares[:, :, None] * slopes[:, None, :]).reshape(len(few), -1)[:, free]
            return np.vstack([slope, pull * np.eye(int(free.sum()))])

        for _ in range(ROUNDS):
            fitted = least_squares(
                errors,
                solution,
                jacobian,
                bounds=(low[free], high[free]),
                max_nfev=25,
                ftol=1e-5,
                xtol=1e-5,
            )
            solution = fitted.x
            residuals = errors(solution)[: len(few)] / roots
            roots = np.sqrt(weights / np.sqrt(1.0 + (residuals / FAR) ** 2))
        return cls(tuple(float(f"{value:.6g}") for value in with_fixed(solution)))

    def predict(self, rows: StepRows) -> Column:
        """Predicted times, (n,), seconds."""
        return np.asarray(_seconds(rows, np.array(self.values)).sum(axis=1))


def _seconds(rows: StepRows, values: Column) -> Matrix:
    """Times of the parts of n runs, (n, parts), seconds."""
    costs = values.reshape(-1, 1 + len(DRIVERS))
    return np.asarray(rows.seconds * np.exp(costs[:, 0] - rows.drivers @ costs[:, 1:].T))


def _bounds(parts: Sequence[Part]) -> Matrix:
    """Priors, lower and upper bounds of a step's values, (3, values); equal for fixed values."""
    none = (0.0, 0.0, 0.0)
    each = [
        (
            (part.start, part.start - 20.0, part.start + 20.0),
            *(part.exponents.get(d, none) for d in DRIVERS),
        )
        for part in parts
    ]
    return np.array(each, dtype=np.float64).reshape(-1, 3).T


CLOSED_FORM: Final[Mapping[str, Step]] = MappingProxyType(
    {key: Step(tuple(_bounds([*parts.values()])[0].tolist())) for key, parts in PARTS.items()}
)
"""Engine and metric -> prior costs, used where no runs were fitted."""


@dataclass(frozen=True)
class ProcessorLlmLatency(StoredPredictor):
    """Time to first token, time per output token, and throughput on CPUs.

    Attributes:
        seed: seed of the subsample of runs.
        calibrated: whether `fit` also calibrates intervals.
        steps: engine, kind of device and metric -> fitted costs.
        nearby: the same -> smoothed residuals on similar machines.
        intervals: bounds of log(measured / predicted), with families of cores or GPUs held out, and
            with models held out; predictions take the wider ones.
        offsets: device, engine and metric -> log(measured / predicted), from `adapt`.
    """

    seed: int = field(default=0, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    steps: Mapping[str, Step] = field(default_factory=dict)
    nearby: Mapping[str, NearbyRuns] = field(default_factory=dict)
    intervals: tuple[LogQuantiles, ...] = ()
    offsets: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "processor_llm_latency"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "drivers": DRIVERS,
        **{key: tuple(own) for key, own in PARTS.items()},
    }
    metrics: ClassVar[tuple[str, ...]] = (
        *("tpot_ms", "ttft_ms", "ttft_service_ms", "request_latency_ms"),
        *("requests_per_s", "tokens_per_s", "tokens_per_s_per_device"),
    )

    def answers(self, query: Query) -> bool:
        """Whether the query is a deployed language model on CPUs, or with llama.cpp on GPUs.

        AMD's GPUs and Intel's for data centers are left to other predictors: no run has them, and
        the closed form of deployments is closer to others' runs (`llm_inference_bench`).
        """
        if query.workload.kind != "llm_deployment" or not query.device.has_sheet:
            return False
        if query.device.kind == "cpu":
            return True
        known = query.device.vendor != "amd" and query.device.architecture != "xe-hpc"
        return query.device.kind == "gpu" and query.deployment.engine.name == "llama.cpp" and known

    def fit(self, measurements: Measurements) -> Self:
        """Fit each time to its rows.

        Args:
            measurements: rows with `ttft_ms` or `tpot_ms`. Calibration holds out the rows of each
                `family` and `model` (groups) together.
        """
        steps: dict[str, Step] = {}
        nearby: dict[str, NearbyRuns] = {}
        left_out: dict[str, list[Column]] = {by: [] for by in LEFT_OUT if self.calibrated}
        strata: list[Names] = []
        for key, positions in _by_step(measurements).items():
            part = measurements.take(positions)
            engine, _, metric = key.split()
            threads = _given_threads(part.queries)
            rows = StepRows.of(metric, part.queries, threads)
            parts = (*PARTS[f"{engine} {metric}"].values(),)
            places = Places.of(part.queries, threads)
            runs = _Runs(rows, places, part.column(metric) / 1e3, part.group("family"))
            steps[key], nearby[key] = runs.fitted(parts, self.seed)
            strata.append(_strata(key, rows))
            for by, residuals in left_out.items():
                residuals.append(self._left_out(runs, part.group(by), parts))
        if not steps:
            return replace(self, steps=steps, nearby=nearby, intervals=(), offsets={})
        errors = [np.concatenate(residuals) for residuals in left_out.values()]
        bounds = tuple(LogQuantiles.of(one, np.concatenate(strata)) for one in errors)
        return replace(self, steps=steps, nearby=nearby, intervals=bounds, offsets={})

    def adapt(self, measurements: Measurements) -> Self:
        """Learn the error of each time by device and engine, the same for all models and loads.

        Where a row lacks a time, the error of its request latency or throughput stands in. The new
        error of a device replaces its earlier one.
        """
        covered = [_fault(query) is None for query in measurements.queries]
        measurements = measurements.take(np.array(covered, dtype=np.bool_))
        if not len(measurements):
            return self
        queries, offsets = measurements.queries, dict(self.offsets)
        logs, share, _ = self._log_times(queries)
        values = metrics_of(Loads.of(queries), share, *np.exp(logs.T))
        whole = request_errors(measurements, values)
        codes: dict[LanguageModel, int] = {}
        models = np.array([codes.setdefault(q.deployment.model, len(codes)) for q in queries])
        for metric, predicted in zip(METRICS, logs.T, strict=True):
            errors = np.log(measurements.column(metric) / 1e3) - predicted
            errors = np.where(np.isnan(errors), whole, errors)
            for key, rows in groups_of(_own_key(query, metric) for query in queries).items():
                at = np.array(rows)[np.isfinite(errors[rows])]
                if len(at):
                    strata = np.full(len(at), key)
                    fitted = Offsets.fit(errors[at], strata, models[at], OFFSET_FACTOR)
                    offsets[key] = fitted.strata[key]
        return replace(self, offsets=offsets)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals and limits, in the order of the queries.

        Raises:
            UnanswerableQuery: a deployment is not covered; the message says why.
            UnknownBandwidth, UnknownPrecision: a device's spec sheet lacks a figure.
        """
        if not queries:
            return Predictions({metric: np.zeros(0) for metric in self.metrics})
        for query in queries:
            if (reason := _fault(query)) is not None:
                raise UnanswerableQuery(f"Not answered on {query.device.name}: {reason}.")
        logs, service_share, strata = self._log_times(queries)
        logs += [
            [self.offsets.get(_own_key(q, metric), 0.0) for metric in METRICS] for q in queries
        ]
        width = width_of_makers(queries)[:, None]
        bounds = [width * self._log_ends(of_time) for of_time in strata]
        loads = Loads.of(queries)
        values, low, high = (
            metrics_of(loads, service_share, *np.exp(logs + offsets).T)
            for offsets in (
                np.zeros(2),
                *(np.column_stack([ends[:, end] for ends in bounds]) for end in (0, 1)),
            )
        )
        for metric in self.metrics:
            if metric.endswith("_s") or "_s_" in metric:
                low[metric], high[metric] = high[metric], low[metric]
        return Predictions(values, low, high, 0.9, [_limits(query) for query in queries])

    def _log_times(self, queries: Sequence[Query]) -> tuple[Matrix, Column, list[Names]]:
        """Logarithms of both times, (n, 2), share of the time to first token that is not queueing,
        (n,), and strata of each time.

        Without tensor parallelism, nothing is faster than one stream on one device.
        """
        as_run = [_as_run(query) for query in queries]
        times = [self._log_seconds(metric, as_run) for metric in METRICS]
        logs, share = np.column_stack([column for column, _ in times]), np.ones(len(queries))
        rows = [row for row, own in enumerate(as_run) if own is not queries[row]]
        if rows:
            asked, base = (
                summed_times([of[row] for row in rows], WorkerTime.of) for of in (queries, as_run)
            )
            ratios = np.log([asked[metric] / base[metric] for metric in METRICS]).T
            tensor = [queries[row].deployment.pool.parallelism.tensor > 1 for row in rows]
            logs[rows] += np.where(np.array(tensor)[:, None], ratios, np.maximum(ratios, 0.0))
            share[rows] = asked["ttft_service_ms"] / asked["ttft_ms"]
        return logs, share, [strata for _, strata in times]

    def _log_seconds(self, metric: str, queries: Sequence[Query]) -> tuple[Column, Names]:
        """Logarithms of the time at the fastest number of threads, and strata, (n,) each."""
        choices = [threads_of(query) for query in queries]
        owner = np.repeat(np.arange(len(queries)), [len(threads) for threads in choices])
        tried = [queries[row] for row in owner.tolist()]
        number = np.array([count for threads in choices for count in threads])
        seconds, strata = np.zeros(len(tried)), np.full(len(tried), "", dtype=np.dtype("<U60"))
        for key, members in groups_of(_key(query, metric) for query in tried).items():
            at = np.array(members)
            rows = StepRows.of(metric, [tried[row] for row in members], number[at].tolist())
            closed = CLOSED_FORM[f"{key.split()[0]} {metric}"]
            seconds[at] = self.steps.get(key, closed).predict(rows)
            if key in self.nearby:
                places = Places.of([tried[row] for row in members], number[at].tolist())
                seconds[at] *= np.exp(self.nearby[key].at(places))
            strata[at] = _strata(key, rows)
        order = np.lexsort((seconds, owner))
        best = order[np.unique(owner[order], return_index=True)[1]]
        return np.log(seconds[best]), strata[best]

    def _log_ends(self, strata: Names) -> Matrix:
        """Log bounds of times, (n, 2): the widest of `intervals`."""
        bounds = [one.log_ends(strata) for one in self.intervals or (LogQuantiles(),)]
        return np.column_stack(
            [
                np.min([one[:, 0] for one in bounds], axis=0),
                np.max([one[:, 1] for one in bounds], axis=0),
            ]
        )

    def _left_out(self, runs: "_Runs", by: Names, parts: Sequence[Part]) -> Column:
        """log(measured / predicted) by fits without the row's group, (n,); NaN for one group."""

        def predicted(held: Mask) -> Column:
            step, nearby = runs.take(~held).fitted(parts, self.seed)
            held_out = runs.take(held)
            return np.log(step.predict(held_out.rows)) + nearby.at(held_out.places)

        logs: Matrix = out_of_fold(by, predicted)
        return np.asarray(np.log(runs.seconds) - logs[0])


@dataclass(frozen=True, slots=True)
class _Runs(Columns):
    """n runs of one metric: parts, smoother coordinates, measured seconds and families."""

    rows: StepRows
    places: Places
    seconds: Column
    families: Names

    def fitted(self, parts: Sequence[Part], seed: int) -> tuple[Step, NearbyRuns]:
        """The step fitted to these runs, and its smoothed residuals."""
        step = Step.fit(parts, self.rows, self.seconds, self.families, seed)
        errors = np.log(self.seconds / step.predict(self.rows))
        return step, NearbyRuns.of(self.places, errors)


def _as_run(query: Query) -> Query:
    """A deployment on GPUs as measured: one stream on one device, with usual micro-batches."""
    one = query.deployment
    batch = one.engine.max_batched_tokens
    stream = replace(
        one,
        load=replace(one.load, requests_per_s=None, concurrency=1.0),
        engine=replace(one.engine, max_batched_tokens=batch and max(batch, LLAMA_BATCH)),
        pool=Pool(),
        prefill=None,
    )
    if query.device.kind == "cpu" or stream == one:
        return query
    return replace(query, workload=stream, operation=Operation(1))


def _by_step(measurements: Measurements) -> dict[str, list[int]]:
    """Engine, kind of device and metric -> positions of the rows that measure it."""
    steps: dict[str, list[int]] = {}
    for metric in METRICS:
        for row in np.flatnonzero(np.isfinite(measurements.column(metric))).tolist():
            steps.setdefault(_key(measurements.queries[row], metric), []).append(row)
    return steps


def _key(query: Query, metric: str) -> str:
    return f"{query.deployment.engine.name} {query.device.kind} {metric}"


def _own_key(query: Query, metric: str) -> str:
    return f"{query.device.name} {_key(query, metric)}"


def _strata(key: str, rows: StepRows) -> Names:
    """Strata of n rows: `key`, and whether the model is so small that per-layer time matters."""
    engine, _, metric = key.split()
    layers = list(PARTS[f"{engine} {metric}"]).index("layers")
    share = rows.seconds[:, layers] / rows.seconds.sum(axis=1)
    return np.where(share > MANY_LAYERS, f"{key}, small model", key)


def _given_threads(queries: Sequence[Query]) -> list[float]:
    """Threads of measured runs: those of their software setup, else all cores."""
    return [threads_of(query)[-1] for query in queries]


def _fault(query: Query) -> str | None:
    """Why a deployment on a CPU is not answered; None where it is, and on GPUs."""
    if query.device.kind == "gpu":
        return None
    deployment, split = query.deployment, query.deployment.pool.parallelism
    engine, load = deployment.engine, deployment.load
    others = split.pipeline * split.attention_data * split.expert
    reason = None
    if engine.name not in ENGINES:
        reason = f"processors support vLLM and llama.cpp, not engine {engine.name}"
    elif deployment.prefill is not None:
        reason = "prefill workers are not supported on processors"
    elif others > 1:
        reason = "processors support only tensor parallelism (over sockets)"
    elif split.tensor > (1 if query.device.memory_nodes else MOST_TENSOR):
        whole = "one machine" if query.device.memory_nodes else f"{MOST_TENSOR} sockets of one"
        reason = f"tensor parallel {split.tensor} is more than {whole}"
    elif load.concurrency is None:
        reason = "processors need the number of requests in flight: give concurrency"
    elif engine.name == "llama.cpp" and load.concurrency > 1.0:
        reason = "llama.cpp is supported for one request at a time: give concurrency 1, or vllm"
    elif load.concurrency > (most := engine.max_sequences or USUAL_SEQUENCES):
        reason = f"the engine runs {most} requests at once: give a concurrency of at most {most}"
    elif engine.draft_tokens or engine.hold_iterations:
        reason = "draft tokens and delayed prefill are not supported on processors"
    return reason


def _limits(query: Query) -> tuple[Limit, ...]:
    model, engine = query.deployment.model, query.deployment.engine.name
    form = model.formats.of_layer(len(model.layers) - 1).dense
    measured = ("q4_k_m",) if engine == "llama.cpp" else ("bf16", "fp16")
    others = {
        MAKER: is_of_other_maker(query.device),
        OTHER_FORMAT: form not in measured,
        NOT_AS_RUN: _as_run(query) is not query,
    }
    return (FEW_MODELS, *(limit for limit, holds in others.items() if holds))
