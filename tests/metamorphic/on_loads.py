"""Laws of served models: load, also around the edge of the memory, lengths, devices, releases."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise, product
from math import inf

from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.model import LanguageModel
from forerun.data.level import USUAL
from forerun.data.number_formats import FORMATS as OF_NAME
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.engine_settings import default_limits
from forerun.features.readers.language_model.quantization import with_formats
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.deployments.answer import Deployed, deployed_all
from forerun.models.answers.deployments.arrivals import NEAR, places
from tests.metamorphic.law import CATALOG, Compared, Grid, in_use, law
from tests.metamorphic.on_devices import SLOWER, siblings

MORE = 0.01
"""Share by which a figure may fall that must not."""
MOVED = 0.01
"""Share by which a limit that does not bind may move a figure, by interpolation."""
AGREE = 0.05
"""Share by which times per token of one steady state may differ."""
COLLECTIVES = 0.1
"""Share of a lone request's time per token that collectives between more devices may add."""
TOGETHER = 1000
"""Deployments that are answered in one call."""
FORMATS = ("mxfp4", "nvfp4", "fp8", "int8", "bf16")
"""Number formats of weights; each has no more bytes than the next."""
TPOT, TTFT, LATENCY, TOKENS = "tpot_ms", "ttft_ms", "request_latency_ms", "tokens_per_s"
MODELS = {
    "llama-3.1-8b": 1,
    "qwen3-8b": 1,
    "qwen3-30b-a3b": 2,
    "llama-3.3-70b": 4,
    "qwen3-32b": 2,
    "gpt-oss-120b": 2,
    "mixtral-8x7b": 4,
    "deepseek-v3": 8,
}
"""Model -> degree of tensor parallelism."""
SERVERS = (
    *("h100-sxm-80gb", "l40s", "a100-sxm-80gb", "b200-sxm-180gb"),
    *("h200-sxm-141gb", "mi300x", "l4", "rtx-4090"),
)
RELEASES = {
    "vllm": ("0.6.3", "0.8.5", "0.11.0", "0.15.1"),
    "sglang": ("0.4.6", "0.5.6"),
    "trtllm": ("1.0.0", "1.2.0"),
}
"""Engine -> releases, the newest last."""
WITH_RUNS = {
    "vllm": ("", "0.12.0", "0.19.0"),
    "sglang": ("", "0.5.1.post1", "0.5.9"),
    "trtllm": ("", "1.0.0rc3", "1.2.0rc6.post1"),
}
"""Engine -> releases under which some of the models were measured, most of them in one format."""
EDGE = (0.25, 0.5, 0.7, 0.78, 0.85, 0.95, 0.99, 1.0, 1.01, 1.05, 1.2, 1.5, 2.0, 4.0)
"""Requests in flight over those that have a place."""
LENGTHS = ((1024.0, 256.0), (128.0, 512.0), (8000.0, 500.0))
LEVELS = (50.0, USUAL, 99.0)
"""Levels of intervals, percent: the least and the largest, and the one that is calibrated."""
FEW, SOME, MANY = 1.0, 8.0, 64.0
LEAST_GIB = 20.0
"""Memory from which on GPUs serve the smallest of the models."""


@dataclass(frozen=True)
class Served:
    """A served model under a load, as a key."""

    model: str
    device: str
    tensor: int
    engine: str = "vllm"
    version: str = ""
    input_tokens: float = 1000.0
    output_tokens: float = 200.0
    cached: float = 0.0
    concurrency: float | None = SOME
    rate: float | None = None
    level: float = USUAL
    weights: str = ""
    for_prompts: int = 0
    most: int | None = None
    tokens: int | None = None
    memory: float = 0.9

    def query(self) -> Query:
        """The query."""
        load = RequestLoad(
            self.input_tokens,
            self.output_tokens,
            requests_per_s=self.rate,
            concurrency=self.concurrency,
            cached_share=self.cached,
        )
        engine = Engine(  # type: ignore[arg-type]
            self.engine,
            self.version,
            max_sequences=self.most,
            max_batched_tokens=self.tokens,
            memory_share=self.memory,
        )
        pool = Pool(Parallelism(self.tensor))
        prefill = Pool(pool.parallelism, self.for_prompts) if self.for_prompts else None
        deployment = LlmDeployment(_model(self.model, self.weights), load, engine, pool, prefill)
        operation = Operation(deployment.devices)
        return Query(deployment, CATALOG.get(self.device), operation=operation, level=self.level)

    def __str__(self) -> str:
        load = f"{self.rate:.4g}/s" if self.concurrency is None else f"{self.concurrency:g} at once"
        release = f"{self.engine} {self.version}".strip()
        cached = f" {self.cached:.0%} cached" if self.cached else ""
        lengths = f"{self.input_tokens:g}+{self.output_tokens:g}{cached}"
        at = "" if self.level == USUAL else f" at {self.level:g} %"
        named = f"{self.model} {self.weights}".strip()
        apart = f" and {self.for_prompts} for prompts" if self.for_prompts else ""
        own = f" {self.most} sequences" if self.most else ""
        own += f" {self.tokens} batched" if self.tokens else ""
        own += "" if self.memory == 0.9 else f" {self.memory:g} of the memory"
        return f"{named} {self.device}{apart} tp {self.tensor} {release} {lengths} {load}{at}{own}"


MEASURED = (
    Served("llama-3.1-8b", "h100-sxm-80gb", 2, "trtllm", "1.0.0rc3", weights="bf16"),
    Served("llama-3.1-8b", "h200-sxm-141gb", 1, "sglang", "0.5.6.post2", weights="fp8"),
    Served("llama-3.1-8b", "h200-sxm-141gb", 1, "vllm", "0.12.0", weights="fp8"),
    Served("qwen3-32b", "h100-sxm-80gb", 4, "trtllm", "1.0.0rc3", weights="fp8"),
    Served("qwen3-32b", "h100-sxm-80gb", 8, "vllm", "0.12.0", weights="bf16"),
    Served("qwen3-32b", "h100-sxm-80gb", 8, "sglang", "0.5.1.post1", weights="bf16"),
    Served("qwen3-32b", "gb200-186gb", 2, "trtllm", "1.3.0rc1", weights="bf16"),
)
"""Deployments with runs, each in its format."""


@cache
def _model(name: str, weights: str = "") -> LanguageModel:
    model = named_language_model(name)
    return with_formats(model, weights=weights, cache=model.formats.cache) if weights else model


def _bases(grid: Grid) -> Iterator[Served]:
    """Deployments on each device by each engine."""
    few = 2 if grid.networks else len(SERVERS)
    engines = [*RELEASES][: 1 if grid.networks else None]
    for (model, degree), device, engine in product([*MODELS.items()][:few], SERVERS[:few], engines):
        yield Served(model, device, degree, engine)


def _with_runs(grid: Grid) -> list[Served]:
    """Those of `_bases` under releases with runs too, where fitted predictors take part."""
    return [replace(one, version=own) for one in _bases(grid) for own in WITH_RUNS[one.engine]]


def _figures(asked: Sequence[Served]) -> list[dict[str, float]]:
    """Metric, and metric and end of its interval, of each; empty where nothing is answered."""
    found: list[dict[str, float]] = []
    for start in range(0, len(asked), TOGETHER):
        queries = [one.query() for one in asked[start : start + TOGETHER]]
        for own in deployed_all(queries, in_use()):
            known = own.estimates if isinstance(own, Deployed) else {}
            values = {name: estimate.value for name, estimate in known.items()}
            for (name, estimate), end in product(known.items(), ("low", "high")):
                if (own_end := getattr(estimate, end)) is not None:
                    values[f"{name} {end}"] = own_end
            found.append(values)
    return found


def _all_placed(one: Served) -> bool:
    return (one.concurrency or 0.0) <= places(one.query())


def _not_less(
    ladders: Iterable[Sequence[Served]], metrics: Sequence[str], allowed: float = MORE
) -> Iterator[Compared]:
    """How far figures fall from the largest before, along deployments of which none is faster."""
    every = [[*ladder] for ladder in ladders]
    figures = iter(_figures([one for ladder in every for one in ladder]))
    for ladder in every:
        own = [next(figures) for _ in ladder]
        for name in metrics:
            largest = 0.0
            for one, known in zip(ladder, own, strict=True):
                if name in known:
                    if largest:
                        yield f"{name} of {one}", largest / known[name] - 1.0 - allowed
                    largest = max(largest, known[name])


def _at(base: Served, *loads: float) -> Iterator[Served]:
    for load in loads:
        yield replace(base, concurrency=load)


def _loaded(bases: Iterable[Served]) -> Iterator[Served]:
    """Each with few, some and many requests in flight."""
    for base in bases:
        yield from _at(base, FEW, SOME, MANY)


def _lengths(base: Served) -> Iterator[Served]:
    for given, answer in LENGTHS:
        yield replace(base, input_tokens=given, output_tokens=answer)


@law
def more_requests_in_flight_are_no_faster(grid: Grid) -> Iterator[Compared]:
    """From one to four times those that have a place: no time falls, and no rate."""
    ladders = []
    for one in (one for base in _bases(grid) for one in _lengths(base)):
        every = places(one.query())
        loads = {max(1.0, float(round(share * every))) for share in EDGE}
        ladders.append([*_at(one, *sorted({1.0, 2.0, 4.0, 16.0} | loads))])
    yield from _not_less(ladders, (TPOT, TTFT, LATENCY, TOKENS))


@law
def more_load_has_no_lower_ends(grid: Grid) -> Iterator[Compared]:
    """Requests in flight and arrivals, through all strata of the calibration, at several levels.

    No end of the interval of a time falls, and none of the rate. Around each step between strata of
    few and of many requests, and up to three times the capacity.
    """
    engines = [replace(one, engine=own) for one in _bases(grid) for own in RELEASES]
    engines = [replace(one, for_prompts=own) for one in dict.fromkeys(engines) for own in (0, 1)]
    bases = [replace(one, level=level) for one in engines for level in LEVELS]
    loads = (1.0, 2.0, 3.0, 4.0, 8.0, 24.0, 32.0, 33.0, 48.0, 64.0, 96.0, 128.0, 256.0, 1024.0)
    full = _figures([replace(one, concurrency=1e5) for one in bases])
    shares = (0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.999, 1.001, 1.4, 3.0)
    ladders = [[*_at(one, *loads)] for one in bases]
    ladders += [
        [replace(one, concurrency=None, rate=share * known["requests_per_s"]) for share in shares]
        for one, known in zip(bases, full, strict=True)
        if "requests_per_s" in known
    ]
    names = (TPOT, TTFT, "ttft_service_ms", LATENCY, TOKENS)
    yield from _not_less(ladders, [f"{name} {end}" for name in names for end in ("low", "high")])


@law
def more_requests_in_flight_draw_no_less_power(grid: Grid) -> Iterator[Compared]:
    """As long as all have a place, or none more has."""
    ladders = ([*_at(base, 1.0, 4.0, 16.0, 64.0, 256.0)] for base in _bases(grid))
    yield from _not_less(ladders, ("power_w",))


@law
def more_requests_a_second_are_no_faster(grid: Grid) -> Iterator[Compared]:
    """Up to almost the capacity: no time falls."""
    shares = (0.01, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
    full = [replace(one, concurrency=1e5) for one in _bases(grid)]
    ladders = [
        [replace(one, concurrency=None, rate=share * known["requests_per_s"]) for share in shares]
        for one, known in zip(full, _figures(full), strict=True)
        if "requests_per_s" in known
    ]
    yield from _not_less(ladders, (TPOT, TTFT, LATENCY))


@law
def a_rate_takes_as_long_per_token_as_its_closed_loop(grid: Grid) -> Iterator[Compared]:
    """Requests that arrive as often as those of a closed loop are answered: tokens within 5 %.

    From `NEAR` of the capacity on, closed loops of many numbers of requests have about one rate.
    """
    loads = (4.0, 8.0, 16.0, 32.0, MANY, 128.0, 256.0)
    bases = [one for base in _bases(grid) for one in [*_lengths(base)][:2]]
    full = _figures([replace(one, concurrency=1e5) for one in bases])
    capacities = [known.get("requests_per_s", 0.0) for known in full]
    closed = [replace(one, concurrency=load) for one in bases for load in loads]
    most = [NEAR * own for own in capacities for _ in loads]
    pairs = [
        (own[TPOT], replace(one, concurrency=None, rate=own["requests_per_s"]))
        for one, own, rate in zip(closed, _figures(closed), most, strict=True)
        if own.get("requests_per_s", rate) < rate
    ]
    for (ms, one), own in zip(pairs, _figures([one for _, one in pairs]), strict=True):
        if TPOT in own:
            yield f"{TPOT} of {one}", abs(own[TPOT] / ms - 1.0) - AGREE


@law
def limits_that_do_not_bind_change_nothing(grid: Grid) -> Iterator[Compared]:
    """Of sequences and of memory with places left over; of tokens with room for all prompts.

    No best estimate moves, and of sequences and memory no end of an interval; memory apart, which
    engines reserve by these limits.
    """
    bases = [replace(one, input_tokens=200.0, concurrency=SOME) for one in _bases(grid)]
    bases += [replace(one, concurrency=None, rate=0.1) for one in bases]
    others = []
    for one in bases:
        tokens, sequences = default_limits(one.query().deployment.engine, CATALOG.get(one.device))
        changed = [replace(one, memory=0.85), replace(one, most=17), replace(one, most=sequences)]
        free = [own for own in changed if places(own.query()) >= 2.0 * SOME]
        others += [(one, own, own.tokens) for own in (*free, replace(one, tokens=2 * tokens))]
    figures = iter(_figures([own for one, other, _ in others for own in (one, other)]))
    for _, other, tokens in others:
        before, after = next(figures), next(figures)
        for name, own in before.items():
            if name != "peak_memory_mib" and not (tokens and name.endswith(("low", "high"))):
                yield f"{name} of {other}", abs(after.get(name, inf) / own - 1.0) - MOVED


@law
def longer_prompts_are_no_faster(grid: Grid) -> Iterator[Compared]:
    """A prompt with more tokens: neither the first token nor the request is earlier, nor the next
    token where all have places.

    Where requests wait for a place, fewer of longer prompts are decoded together.
    """
    lengths = (64.0, 256.0, 512.0, 1000.0, 1024.0, 2048.0, 4096.0, 16384.0)
    bases = [*_with_runs(grid), *MEASURED]
    for load in (FEW, SOME, MANY):
        ladders = [
            [replace(base, concurrency=load, input_tokens=length) for length in lengths]
            for base in bases
        ]
        yield from _not_less(ladders, (TTFT,))
        placed = [[one for one in own if _all_placed(one)] for own in ladders]
        yield from _not_less(placed, (TPOT, LATENCY))


@law
def longer_answers_are_no_faster(grid: Grid) -> Iterator[Compared]:
    """An answer with more tokens: its request takes no less time."""
    lengths = (16.0, 100.0, 128.0, 512.0, 2048.0)
    ladders = (
        [replace(base, concurrency=load, output_tokens=length) for length in lengths]
        for base in _bases(grid)
        for load in (SOME, MANY)
    )
    yield from _not_less(ladders, (LATENCY,))


@law
def more_devices_serve_no_slower(grid: Grid) -> Iterator[Compared]:
    """Twice the tensor-parallel devices: tokens take at most 10 % more, by collectives.

    Where requests wait for a place, fewer are decoded together on fewer devices.
    """
    ladders = (
        [replace(base, tensor=degree) for degree in (8, 4, 2, 1)]
        for base in _loaded(_with_runs(grid))
    )
    pairs = (pair for ladder in ladders for pair in pairwise(ladder))
    placed = [pair for pair in pairs if all(_all_placed(one) for one in pair)]
    yield from _not_less(placed, (TPOT,), COLLECTIVES)


@law
def better_siblings_serve_no_slower(grid: Grid) -> Iterator[Compared]:
    """A GPU of the same generation without a lower figure: neither time rises by more than 3 %.

    Where requests wait for a place, fewer are decoded together in less memory.
    """
    large = {d.name for d in CATALOG if d.kind == "gpu" and (d.memory_gib or 0.0) > LEAST_GIB}
    ladders = (
        [replace(base, device=own) for own in (better, worse)]
        for worse, better in siblings()
        if {worse, better} <= large
        for base in _loaded(_bases(grid))
        if base.device == SERVERS[0]
    )
    placed = [pair for pair in ladders if all(_all_placed(one) for one in pair)]
    yield from _not_less(placed, (TTFT, TPOT), SLOWER)


@law
def newer_releases_are_no_slower(grid: Grid) -> Iterator[Compared]:
    """A later release of an engine: neither time rises."""
    ladders = (
        [replace(base, version=own) for own in reversed(RELEASES[base.engine])]
        for base in _loaded(_bases(grid))
    )
    yield from _not_less(ladders, (TTFT, TPOT))


@law
def cached_prompts_are_no_slower(grid: Grid) -> Iterator[Compared]:
    """More of a prompt in the prefix cache: neither time rises."""
    ladders = (
        [replace(base, cached=share) for share in (0.95, 0.8, 0.5, 0.2, 0.0)]
        for base in _loaded(_bases(grid))
    )
    yield from _not_less(ladders, (TTFT, TPOT))


def _in_formats(base: Served) -> list[Served]:
    """The deployment in all formats, and those whose arithmetic its device has."""
    return [replace(base, weights=own) for own in FORMATS]


def _has_arithmetic(one: Served) -> bool:
    return OF_NAME[one.weights].precisions[0] in CATALOG.get(one.device).peak_tflops


@law
def fewer_bytes_are_no_slower(grid: Grid) -> Iterator[Compared]:
    """Weights of fewer bytes, whose arithmetic the device has: tokens take no longer.

    At an equal number of requests in flight that all have a place.
    """
    pairs = [
        pair
        for one in _with_runs(grid)
        for base in (one, replace(one, tensor=2 * one.tensor, output_tokens=128.0))
        for load in (FEW, SOME, MANY)
        for pair in combinations(_in_formats(replace(base, concurrency=load)), 2)
        if OF_NAME[pair[0].weights].bytes < OF_NAME[pair[1].weights].bytes
        and all(_has_arithmetic(one) for one in pair)
    ]
    placed = [pair for pair in pairs if all(_all_placed(one) for one in pair)]
    yield from _not_less(placed, (TPOT,))


@law
def fewer_bytes_need_no_more_memory(grid: Grid) -> Iterator[Compared]:
    """Weights of fewer bytes: no more memory, whatever the device multiplies."""
    ladders = map(_in_formats, _loaded(_bases(grid)))
    yield from _not_less(ladders, ("peak_memory_mib",))
