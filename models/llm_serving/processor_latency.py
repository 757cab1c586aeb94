"""Times of language models on processors by vLLM and llama.cpp, and by llama.cpp on one GPU.

The time of a step is a least time by bytes and operations, times what boosters fit to measured runs
(`forerun.features.llm_serving.processors`). They are monotone: no answer is slower for more
bandwidth, faster arithmetic or fewer bits, and none is faster for more requests in flight or longer
prompts and contexts. Where the number of threads is open, it is the one that makes the time least.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, groups_of
from forerun.data.errors import UnanswerableQuery
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_serving.processors import (
    DECODE,
    FALLING,
    FEATURES,
    PROMPT,
    StepRows,
    decode_parts,
    prompt_parts,
    threads_of,
)
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.bags import coarse
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_serving.continuous_batching import Loads, metrics_of
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

STEPS: Final = MappingProxyType({"tpot_ms": decode_parts, "ttft_ms": prompt_parts})
"""Time -> its parts."""
SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "objective": "l2",
        "learning_rate": 0.06,
        "min_data_in_leaf": 20,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "monotone_constraints": [-1 if name in FALLING else 0 for name in FEATURES],
    }
)
SHEET: Final[Mapping[str, float]] = MappingProxyType({"cpu": 0.3, "gpu": 1.0})
"""Kind of device -> exponent with which a part follows the sheet, apart from what is fitted. On
processors it is low, and boosters make parts faster alone for more bandwidth or arithmetic."""
LEAVES: Final[Mapping[str, int]] = MappingProxyType({"llama.cpp": 16, "vllm": 4})
"""Engine -> leaves of a tree: vLLM was measured on fewer machines."""
PULL: Final = 0.02
"""Weight of what the sheet says of a part of a machine against each of its runs."""
LEAST: Final = 0.02
"""Least cost of a part of a machine over that of the sheet, in units of its median."""
LAYERS: Final = DECODE.index("layers")
MANY_LAYERS: Final = 0.2
"""Share of layers in the time on a usual machine from which on a model counts as small."""
MOST_TENSOR: Final = 8
"""Most sockets that share the layers."""
FOLDS: Final = 5
ENGINES: Final = ("vllm", "llama.cpp")
LEFT_OUT: Final = ("processor", "model")
"""Groups that calibration leaves out."""
FEW_MODELS: Final = Limit(
    "five models were measured with llama.cpp and four with vLLM on processors: whether the "
    "interval holds for another one was checked on these alone",
    LATENCY,
)
OTHER_FORMAT: Final = Limit(
    "runs have weights of 16 bits with vLLM and q4_k_m with llama.cpp: other formats change the "
    "bytes alone",
    LATENCY,
    "transfer",
)


@dataclass(frozen=True)
class Step:
    """The fitted parts of one time under one engine on one kind of device.

    Attributes:
        used: positions of the parts that any run has.
        boosters: of each of these, logarithm of its cost over that of the sheet with `sheet`.
        sheet: exponent of the sheet's own ratio.
    """

    used: tuple[int, ...]
    boosters: tuple[BoosterBag, ...]
    sheet: float

    @classmethod
    def fit(
        cls, rows: StepRows, seconds: Column, machines: Names, processors: Names, recipe: "_Recipe"
    ) -> Self:
        """Fit to n runs.

        Args:
            rows: their parts.
            seconds: (n,) measured times.
            machines: (n,) labels of machines, each with costs of its own.
            processors: (n,) labels, of which each has the root of its number of machines as weight.
            recipe: exponent of the sheet, boosting rounds and seeds.
        """
        used = np.flatnonzero(rows.seconds.max(axis=0) > 0.0)
        names, first, of = np.unique(machines, return_index=True, return_inverse=True)
        slower = rows.slower[first][:, used]
        runs = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1])
        shares = rows.seconds[:, used] / seconds[:, None]
        sheets = np.exp(slower)
        costs = np.array(
            [_costs(shares[own], sheet) for own, sheet in zip(runs, sheets, strict=True)]
        )
        _, group, counts = np.unique(processors[first], return_inverse=True, return_counts=True)
        weights = np.sqrt(len(names) / counts[group])
        left = np.log(costs) - recipe.sheet * slower
        bags = [
            BoosterBag.fit(
                rows.machine[first],
                target,
                parameters={**SETTINGS, "num_leaves": recipe.leaves},
                trees=recipe.trees,
                seeds=recipe.seeds,
                weights=weights / weights.mean(),
            )
            for target in left.T
        ]
        boosters = tuple(BoosterBag(tuple(coarse(text, 9) for text in bag.texts)) for bag in bags)
        return cls(tuple(used.tolist()), boosters, recipe.sheet)

    def predict(self, rows: StepRows) -> Column:
        """Seconds, (n,)."""
        used = list(self.used)
        logs = self.sheet * rows.slower[:, used]
        if self.boosters:
            logs = logs + np.column_stack([own.predict(rows.machine) for own in self.boosters])
        costs = np.exp(logs)
        return np.asarray((rows.seconds[:, used] * costs).sum(axis=1))


class _Recipe(NamedTuple):
    sheet: float
    trees: int
    seeds: Sequence[int]
    leaves: int


def _costs(shares: Matrix, sheet: Column) -> Column:
    """Costs of the parts of one machine, none of them below a fiftieth of that of the sheet.

    Least squares of relative errors, which pull the costs to those of the sheet times one factor.

    Args:
        shares: (runs, parts) parts over the measured time.
        sheet: (parts,) costs by the sheet.
    """
    from scipy.optimize import nnls

    usual = sheet / np.median(shares @ sheet)
    pull = PULL * np.sqrt(len(shares))
    matrix = np.vstack([shares * usual, pull * np.eye(len(usual))])
    found, _ = nnls(matrix, np.append(np.ones(len(shares)), np.full(len(usual), pull)))
    return np.asarray(usual * np.maximum(found, LEAST))


CLOSED_FORM: Final = Step(tuple(range(len(DECODE))), (), 1.0)
"""Parts as the sheet has them, where no run tells more; there are as many of a prompt."""


@dataclass(frozen=True)
class ProcessorLlmLatency(StoredPredictor):
    """Time to the first token, time per token, and rates on processors.

    Attributes:
        seed: seed of the boosters and of the rows that they are fitted on.
        bag: number of boosters of each time.
        trees: number of boosting rounds.
        calibrated: whether `fit` also calibrates intervals.
        steps: engine, kind of device and time -> its fitted correction.
        intervals: bounds of log(measured / predicted), with processors or GPUs left out, and with
            models left out; the wider ones hold.
    """

    seed: int = field(default=0, metadata=SETTING)
    bag: int = field(default=1, metadata=SETTING)
    trees: int = field(default=150, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    steps: Mapping[str, Step] = field(default_factory=dict)
    intervals: tuple[LogQuantiles, ...] = ()
    name: ClassVar[str] = "processor_llm_latency"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of a machine": FEATURES,
        "parts of a token": DECODE,
        "parts of a prompt": PROMPT,
    }
    metrics: ClassVar[tuple[str, ...]] = (
        *("tpot_ms", "ttft_ms", "ttft_service_ms", "request_latency_ms"),
        *("requests_per_s", "tokens_per_s", "tokens_per_s_per_device"),
    )

    def answers(self, query: Query) -> bool:
        """Deployed language models on processors, and with llama.cpp on one GPU."""
        if query.workload.kind != "llm_deployment" or not query.device.has_sheet:
            return False
        if query.device.kind == "cpu":
            return True
        alone = query.deployment.load.concurrency == 1.0 and query.deployment.devices == 1
        llama = query.deployment.engine.name == "llama.cpp"
        return query.device.kind == "gpu" and llama and alone

    def fit(self, measurements: Measurements) -> Self:
        """Fit each time to its rows.

        Args:
            measurements: rows with `ttft_ms` or `tpot_ms`. Rows of one `processor` and of one
                `model` (groups) are held out together in the calibration.
        """
        steps: dict[str, Step] = {}
        left_out: dict[str, list[Column]] = {by: [] for by in LEFT_OUT if self.calibrated}
        strata: list[Names] = []
        for key, positions in _by_step(measurements).items():
            own = measurements.take(positions)
            metric = key.rpartition(" ")[2]
            rows = StepRows.of(STEPS[metric], own.queries, _given_threads(own.queries))
            runs = _Runs(
                rows, own.column(metric) / 1e3, own.group("device"), own.group("processor")
            )
            engine, kind, _ = key.split()
            recipe = self._recipe(kind, engine)
            steps[key] = runs.step(recipe)
            strata.append(_strata(key, rows))
            for by, residuals in left_out.items():
                residuals.append(self._left_out(runs, own.group(by), recipe))
        if not steps:
            return replace(self, steps=steps, intervals=())
        every = [np.concatenate(residuals) for residuals in left_out.values()]
        bounds = tuple(LogQuantiles.of(own, np.concatenate(strata)) for own in every)
        return replace(self, steps=steps, intervals=bounds)

    def adapt(self, measurements: Measurements) -> Self:
        """Nothing changes: measured bandwidth belongs in the spec sheet."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals and limits, in the order of the queries.

        Raises:
            UnanswerableQuery: a deployment is not covered; the message says which part.
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        if not queries:
            return Predictions({metric: np.zeros(0) for metric in self.metrics})
        for query in queries:
            _check(query)
        found = [self._log_seconds(metric, queries) for metric in STEPS]
        logs = np.column_stack([own for own, _ in found])
        bounds = [self._log_ends(strata) for _, strata in found]
        loads, whole = Loads.of(queries), np.ones(len(queries))
        values, low, high = (
            metrics_of(loads, whole, *np.exp(logs + add).T)
            for add in (
                np.zeros(2),
                *(np.column_stack([own[:, end] for own in bounds]) for end in (0, 1)),
            )
        )
        for metric in self.metrics:
            if metric.endswith("_s") or "_s_" in metric:
                low[metric], high[metric] = high[metric], low[metric]
        return Predictions(values, low, high, 0.9, [_limits(query) for query in queries])

    def _log_seconds(self, metric: str, queries: Sequence[Query]) -> tuple[Column, Names]:
        """Logarithms of the time at the number of threads that makes it least, and strata, (n,)."""
        each = [threads_of(query) for query in queries]
        owner = np.repeat(np.arange(len(queries)), [len(own) for own in each])
        tried = [queries[row] for row in owner.tolist()]
        rows = StepRows.of(STEPS[metric], tried, [number for own in each for number in own])
        seconds, strata = np.zeros(len(tried)), np.full(len(tried), "", dtype=np.dtype("<U60"))
        for key, places in groups_of(_key(query, metric) for query in tried).items():
            own, step = rows.take(np.array(places)), self.steps.get(key, CLOSED_FORM)
            seconds[places], strata[places] = step.predict(own), _strata(key, own)
        order = np.lexsort((seconds, owner))
        best = order[np.unique(owner[order], return_index=True)[1]]
        return np.log(seconds[best]), strata[best]

    def _log_ends(self, strata: Names) -> Matrix:
        """Log bounds of times, (n, 2): the wider ones of those in `intervals`."""
        ends = [own.log_ends(strata) for own in self.intervals or (LogQuantiles(),)]
        return np.column_stack(
            [
                np.min([own[:, 0] for own in ends], axis=0),
                np.max([own[:, 1] for own in ends], axis=0),
            ]
        )

    def _recipe(self, kind: str, engine: str) -> _Recipe:
        seeds = range(self.bag * self.seed, self.bag * self.seed + self.bag)
        return _Recipe(SHEET[kind], self.trees, seeds, LEAVES[engine])

    def _left_out(self, runs: "_Runs", by: Names, recipe: _Recipe) -> Column:
        """log(measured / predicted) by fits without a row's group, (n,); NaN with one group."""

        def predicted(held: Mask) -> Column:
            return np.log(runs.take(~held).step(recipe).predict(runs.rows.take(held)))

        found: Matrix = out_of_fold(by, predicted, folds=FOLDS, seed=self.seed)
        return np.asarray(np.log(runs.seconds) - found[0])


@dataclass(frozen=True, slots=True)
class _Runs(Columns):
    """Runs of one time: their parts, measured seconds, machines and processors, each of n rows."""

    rows: StepRows
    seconds: Column
    machines: Names
    processors: Names

    def step(self, recipe: _Recipe) -> Step:
        """The step fitted to these runs."""
        return Step.fit(self.rows, self.seconds, self.machines, self.processors, recipe)


def _by_step(measurements: Measurements) -> dict[str, list[int]]:
    """Engine, kind of device and time -> positions of the rows in which it was measured."""
    steps: dict[str, list[int]] = {}
    for metric in STEPS:
        for row in np.flatnonzero(np.isfinite(measurements.column(metric))).tolist():
            steps.setdefault(_key(measurements.queries[row], metric), []).append(row)
    return steps


def _key(query: Query, metric: str) -> str:
    return f"{query.deployment.engine.name} {query.device.kind} {metric}"


def _strata(key: str, rows: StepRows) -> Names:
    """Engine, device and time of n rows, and whether the model is so small that layers matter."""
    share = rows.seconds[:, LAYERS] / rows.seconds.sum(axis=1)
    return np.where(share > MANY_LAYERS, f"{key}, small model", key)


def _given_threads(queries: Sequence[Query]) -> list[float]:
    """Threads of measured runs: those of their software, else all cores."""
    return [threads_of(query)[-1] for query in queries]


def _check(query: Query) -> None:
    """Refuse what no run covers.

    Raises:
        UnanswerableQuery: with the part that is not covered.
    """
    deployment, split = query.deployment, query.deployment.pool.parallelism
    engine, load = deployment.engine, deployment.load
    others = split.pipeline * split.attention_data * split.expert
    reason = None
    if engine.name not in ENGINES:
        reason = f"processors are answered with vLLM and llama.cpp, not with engine {engine.name}"
    elif deployment.prefill is not None:
        reason = "workers for prompts alone are not answered on processors"
    elif others > 1:
        reason = "on processors, layers are shared by tensor parallelism (sockets) alone"
    elif split.tensor > MOST_TENSOR:
        reason = f"tensor parallel {split.tensor} is more than {MOST_TENSOR} sockets of a processor"
    elif load.concurrency is None:
        reason = "processors are answered for requests in flight: give concurrency"
    elif engine.name == "llama.cpp" and load.concurrency > 1.0:
        reason = "llama.cpp is answered for one request at a time: give concurrency 1, or vllm"
    elif engine.draft_tokens:
        reason = "speculative decoding is not answered on processors"
    if reason is not None:
        raise UnanswerableQuery(f"Not answered on {query.device.name}: {reason}.")


def _limits(query: Query) -> tuple[Limit, ...]:
    model, engine = query.deployment.model, query.deployment.engine.name
    form = model.formats.of_layer(len(model.layers) - 1).dense
    measured = ("q4_k_m",) if engine == "llama.cpp" else ("bf16", "fp16")
    return (FEW_MODELS,) if form in measured else (FEW_MODELS, OTHER_FORMAT)
