"""Parts of the step time of language models on CPUs, and of llama.cpp on a GPU.

A step takes the sum of its parts: bytes at a bandwidth, operations at a rate, and fixed times per
layer and step. The model and the requests determine the numbers of bytes, operations and layers.
The cost of each falls with figures of the spec sheet, by exponents fitted within bounds, so more
bytes or operations are never faster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from forerun.data.columns import Columns, Matrix
from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.model import LanguageModel
from forerun.data.processor_cores import core_of
from forerun.data.query import Query

DRIVERS: Final = ("threads", "nodes", "bandwidth", "speed", "rate", "units")
"""Machine figures that costs depend on, each the logarithm of its ratio to a reference machine:
threads, memory nodes, bandwidth, speed of a thread outside of kernels, operations/s of a thread,
and the speed-up by matrix units (for vLLM, 1 if cores multiply in bf16, at the rate `rate`)."""
USUAL_THREADS: Final = 16.0
USUAL_BANDWIDTH: Final = 1e11
USUAL_RATE: Final = 1e12
"""Threads, bytes/s and operations/s of the reference machine."""
CORE_RATE: Final[Mapping[str, float]] = MappingProxyType({"llama.cpp": 1e11, "vllm": 2e11})
USUAL_SPEED: Final[Mapping[str, float]] = MappingProxyType({"cpu": 1640.0, "gpu": 1.0})
LAYER_S: Final = 5e-5
TOKEN_S: Final = 1e-9
HOST_S: Final = 2e-3
REQUEST_S: Final = 5e-4
SORT_S: Final = 1e-7
"""Reference costs, seconds: per layer; per layer and element of a token; of the host per step and
per request; and per token of the vocabulary in a sort."""
SORTED: Final = frozenset({128_256, 151_936, 152_064})
"""Vocabulary sizes of Llama 3, Qwen 2.5 and Qwen 3, whose published `generation_config.json` asks
for top-p, so that vLLM sorts the vocabulary for each token. Its benchmark keeps these settings,
which take substantial time (vllm-project/vllm#32723)."""
DOT: Final = 1.35
"""Speed-up of kernels by dot-product instructions for eight-bit integers."""


class Part(NamedTuple):
    """A part of a step time.

    Attributes:
        start: prior of the logarithm of its cost.
        exponents: driver -> prior, lower and upper bound of the exponent with which the cost falls.
    """

    start: float
    exponents: Mapping[str, tuple[float, float, float]]


_ANY: Final = {"bandwidth": (0.8, 0.0, 1.0)}
_LAYERS: Final = {"speed": (1.0, 0.0, 1.5), "threads": (-0.2, -1.0, 0.0)}
_HOST: Final = {"speed": (1.0, 0.0, 1.5), "threads": (0.0, -1.0, 0.5)}
_PRODUCTS: Final = {
    **{"threads": (1.0, 0.0, 1.0), "rate": (0.7, 0.0, 1.0), "units": (1.0, 0.0, 3.0)},
}
_VECTORS: Final = {
    **{"threads": (1.0, 0.0, 1.0), "rate": (0.7, 0.0, 1.0), "speed": (0.2, 0.0, 1.0)},
}
_SOCKETS: Final = {"nodes": (0.0, -2.0, 0.0)}
PARTS: Final[Mapping[str, Mapping[str, Part]]] = MappingProxyType(
    {
        "vllm tpot_ms": {
            "weights": Part(0.0, _ANY),
            "unpacking": Part(
                -0.5,
                {
                    **{"threads": (1.0, 0.0, 1.0), "speed": (1.0, 0.0, 1.5)},
                    "units": (0.3, 0.0, 2.0),
                },
            ),
            "cache": Part(0.5, {**_ANY, "threads": (0.3, 0.0, 1.0)}),
            "layers": Part(0.7, _LAYERS),
            "products": Part(1.0, _PRODUCTS),
            "host": Part(0.0, _HOST),
            "requests": Part(0.0, _HOST),
            "sort": Part(-0.2, {"speed": (1.0, 0.0, 1.5)}),
        },
        "vllm ttft_ms": {
            "products": Part(0.0, _PRODUCTS),
            "attention": Part(0.0, _PRODUCTS),
            "layers": Part(0.7, _LAYERS),
            "weights": Part(0.0, _ANY),
            "host": Part(1.0, _HOST),
            "waiting": Part(-2.0, _PRODUCTS),
            "sort": Part(-0.2, {"speed": (1.0, 0.0, 1.5)}),
        },
        "llama.cpp tpot_ms": {
            "weights": Part(0.0, _ANY | _SOCKETS),
            "unpacking": Part(0.0, _VECTORS),
            "cache": Part(0.5, {**_ANY, **_VECTORS}),
            "layers": Part(0.0, _LAYERS | _SOCKETS),
        },
        "llama.cpp ttft_ms": {
            "products": Part(0.0, {**_VECTORS, "units": (0.5, 0.0, 1.0)}),
            "attention": Part(0.0, _VECTORS),
            "layers": Part(0.0, _LAYERS | _SOCKETS),
            "weights": Part(0.0, _ANY | _SOCKETS),
            "elements": Part(1.0, {"threads": (0.7, 0.0, 1.0), "speed": (0.7, 0.0, 1.5)}),
        },
    }
)
"""Engine and metric -> its parts: reading weights, and unpacking them; reading keys and values;
per-layer time; operations of other requests and their prompts; host time per step and per other
request; sorting the vocabulary; operations of the own prompt and of other prompts."""
EACH: Final = 32
MOST_THREADS: Final = 512
"""Thread counts are tried one by one up to `EACH` and in steps of four up to `MOST_THREADS`, so
that a machine with more cores tries all counts that one with fewer does."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Figures of one device, or of all devices that share the layers.

    Attributes:
        cores: cores, or compute units of a GPU.
        bandwidth: memory bandwidth, bytes/s.
        rate: operations/s of a core: integer vector operations for llama.cpp, bf16 for vLLM, fp32
            on a GPU.
        units: logarithm of the speed-up by matrix units; for vLLM, whether cores multiply in bf16.
        speed: speed of a thread outside of kernels, as `Core.speed`.
        nodes: memory (NUMA) nodes.
    """

    cores: float
    bandwidth: float
    rate: float
    units: float
    speed: float
    nodes: float


@dataclass(frozen=True, slots=True)
class StepRows(Columns):
    """One metric of n deployments on one engine.

    Attributes:
        seconds: (n, parts) time of each part at reference costs, in the order of `PARTS`.
        drivers: (n, drivers) columns `DRIVERS`.
    """

    seconds: Matrix
    drivers: Matrix

    @classmethod
    def of(cls, metric: str, queries: Sequence[Query], threads: Sequence[float]) -> "StepRows":
        """Rows of n queries, each at a number of threads; `metric` is `tpot_ms` or `ttft_ms`."""
        seconds = _decode if metric == "tpot_ms" else _prompt
        rows = list(zip(queries, threads, strict=True))
        names = PARTS[f"{queries[0].deployment.engine.name} {metric}"]
        times = [seconds(query, number) for query, number in rows]
        drivers = np.array([_drivers(query, number) for query, number in rows], dtype=np.float64)
        return cls(
            np.array([[parts[name] for name in names] for parts in times], dtype=np.float64),
            drivers,
        )


def machine_of(query: Query) -> Machine:
    """The figures of a deployment's devices.

    Raises:
        UnanswerableQuery: a CPU's spec sheet lacks cores, clock or peaks.
        UnknownBandwidth, UnknownPrecision: a spec sheet lacks bandwidth or peaks.
    """
    integers = query.deployment.engine.name == "llama.cpp"
    return _machine(query.device, integers, query.deployment.pool.parallelism.tensor)


@lru_cache(maxsize=4096)
def _machine(device: Device, integers: bool, sockets: int) -> Machine:
    bandwidth = device.bandwidth_gbs * 1e9 * sockets
    if device.kind == "gpu":
        units = float(device.compute_units or 1)
        rate, wide = (device.peak(name) * 1e12 / units for name in ("fp32", "fp16"))
        return Machine(units, bandwidth, rate, np.log(max(1.0, wide / rate)), 1.0, 1.0)
    core = core_of(device)
    if core is None or device.compute_units is None:
        raise UnanswerableQuery(
            f"Language models on {device.name} need the processor's compute_units (cores), "
            "boost_clock_mhz and peak_tflops.fp32, or a microarchitecture that is known."
        )
    hertz = 1e6 * (device.boost_clock_mhz or 1e3 * core.clock_ghz)
    vector = core.integer_bits / 16 * (DOT if core.dot else 1.0)
    rate, units = core.bf16, float(core.bf16 > core.fp32)
    if integers:
        rate, units = vector, np.log(max(1.0, core.int8 / 16 / vector))
    speed = core.speed * hertz / 1e9 / core.clock_ghz
    cores, nodes = sockets * device.compute_units, sockets * (device.memory_nodes or 1)
    return Machine(float(cores), bandwidth, rate * hertz, units, speed, float(nodes))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a model that determine its times.

    Attributes:
        weights: bytes of all weights except embeddings that are only looked up.
        parameters: active parameters.
        share: share of `weights` that one token reads.
        layers: number of layers.
        hidden: width of a token between layers.
    """

    weights: float
    parameters: float
    share: float
    layers: int
    hidden: int


@lru_cache(maxsize=256)
def sizes_of(model: LanguageModel) -> Sizes:
    """The sizes of a model, without its input embeddings unless they are tied to the output."""
    active, total = model.active_parameters(), model.parameters()
    read = total if model.tied_embeddings else total - model.table_parameters()
    weights = model.weight_bytes() * read / total
    return Sizes(weights, active, active / read, len(model.layers), model.hidden_size)


def threads_of(query: Query) -> list[float]:
    """Thread counts to try for a deployment: that of its software, else any up to all cores.

    Engines are assumed to run the fastest thread count.
    """
    cores = machine_of(query).cores
    if query.device.kind == "gpu":
        return [cores]
    given = query.software.threads
    if given is not None:
        return [min(float(given), cores)]
    most = int(min(cores, MOST_THREADS))
    return [float(n) for n in (*range(1, min(most, EACH) + 1), *range(EACH + 4, most + 1, 4))]


def in_flight(query: Query) -> float:
    """Requests in a step, at least one."""
    return max(1.0, query.deployment.load.concurrency or 1.0)


def _decode(query: Query, threads: float) -> dict[str, float]:
    """Seconds of each part of the time per output token after the first, at reference costs."""
    deployment = query.deployment
    model, number, load = sizes_of(deployment.model), in_flight(query), deployment.load
    context = max(1, int(load.input_tokens + load.output_tokens / 2.0))
    weights = model.weights * min(1.0, model.share * number) / USUAL_BANDWIDTH
    tokens = 1.0 + prompt_tokens(query) / max(load.output_tokens, 1.0)
    return {
        "weights": weights,
        "unpacking": weights,
        "cache": number * deployment.model.cache_bytes(context) / USUAL_BANDWIDTH,
        "layers": model.layers * LAYER_S,
        "products": (number - 1.0) * 2.0 * model.parameters * tokens / USUAL_RATE,
        "host": HOST_S,
        "requests": (number - 1.0) * REQUEST_S,
        "sort": _sorted_s(query) * max(1.0, number / threads),
    }


def _prompt(query: Query, threads: float) -> dict[str, float]:
    """Seconds of each part of the time to first token, at reference costs."""
    model, number, tokens = sizes_of(query.deployment.model), in_flight(query), prompt_tokens(query)
    products = 2.0 * model.parameters * tokens / USUAL_RATE
    return {
        "products": products,
        "attention": 2.0 * model.layers * model.hidden * tokens * tokens / USUAL_RATE,
        "layers": model.layers * LAYER_S,
        "weights": model.weights * min(1.0, model.share * tokens) / USUAL_BANDWIDTH,
        "elements": model.layers * tokens * model.hidden * TOKEN_S,
        "host": HOST_S,
        "waiting": (number - 1.0) * products,
        "sort": _sorted_s(query),
    }


def _sorted_s(query: Query) -> float:
    size, sampling = query.deployment.model.vocabulary, query.deployment.engine.sampling
    sorts = size in SORTED if sampling is None else sampling == "top_p"
    return SORT_S * size if sorts else 0.0


def prompt_tokens(query: Query) -> float:
    """Prompt tokens that miss the prefix cache, at least one."""
    load = query.deployment.load
    return max(1.0, load.input_tokens * (1.0 - load.cached_share))


def _drivers(query: Query, threads: float) -> tuple[float, ...]:
    machine, engine = machine_of(query), query.deployment.engine.name
    ratios = (
        *(threads / USUAL_THREADS, machine.nodes, machine.bandwidth / USUAL_BANDWIDTH),
        *(machine.speed / USUAL_SPEED[query.device.kind], machine.rate / CORE_RATE[engine]),
    )
    return (*np.log(ratios).tolist(), machine.units)
