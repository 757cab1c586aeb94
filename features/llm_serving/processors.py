"""Language models on processors, and of llama.cpp on a GPU: the parts of their times.

A step takes the sum of its parts: bytes at a bandwidth, operations at a rate, and times for each
layer and step. How many bytes, operations and layers there are follows from the model and the
requests; what one of them costs is a property of the machine, and is fitted to its features. These
are of the spec sheet, never of names. So no model is faster with more bytes or operations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from forerun.data.columns import Columns, Matrix
from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.model import LanguageModel
from forerun.data.processor_cores import core_of
from forerun.data.query import Query

FEATURES: Final = (
    *("log_threads", "log_memory_nodes", "log_bandwidth"),
    *("log_rate", "log_wide_share", "log_float_rate"),
)
FALLING: Final = FEATURES[2:]
"""Features that make no part slower as they grow."""
DECODE: Final = ("weights", "cache", "layers", "others", "host", "prompts", "hosts")
"""Parts of a step that makes a token of each request: bytes of weights; of keys and values; layers;
operations of all requests but one; the step on the host; prompts of other requests; requests on the
host."""
PROMPT: Final = ("products", "attention", "layers", "weights", "small", "host", "waiting")
"""Parts of the time to the first token: operations with weights; those of attention; layers; bytes
of weights; layers by tokens; the host; prompts of other requests."""
USUAL_BANDWIDTH: Final = 1e11
USUAL_RATE: Final = 1e12
"""Bytes a second and operations a second in which parts are expressed."""
LAYER_S: Final = 5e-5
TOKEN_S: Final = 1e-6
HOST_S: Final = 5e-3
"""Seconds of a layer, of a token in a layer, and of the host in which parts are expressed."""
DOT: Final = 1.35
"""Rate of kernels with products of eight-bit integers over that of kernels without."""
UNPACKED: Final = 0.25
"""Exponent of the vector rate of a GPU in the time of bytes that it unpacks; that of its bandwidth
is the rest. It was chosen on GPUs that were held out one by one."""
EACH: Final = 32
MOST_THREADS: Final = 512
"""Threads are tried one by one up to `EACH` and in fours up to `MOST_THREADS`, so that a machine
with more cores tries all that one with fewer does."""
USUAL_SEQUENCES: Final = 256
"""Most sequences of a step where the engine's setting is not given."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Figures of one device, or of all that share the layers.

    Attributes:
        cores: cores, or units of a GPU.
        bandwidth: bytes/s.
        rate: operations/s of a core on vectors of integers, in fp32 on a GPU.
        wide_rate: the same with what the engine uses of matrix units and of products in bf16.
        float_rate: floating-point operations/s of a core in fp32.
        nodes: sockets, each with memory of its own.
    """

    cores: float
    bandwidth: float
    rate: float
    wide_rate: float
    float_rate: float
    nodes: float


class Parts(NamedTuple):
    """Parts of a time: seconds on a usual machine, and what each follows on other machines.

    Attributes:
        seconds: of each part on a usual machine.
        slower: logarithm of the ratio of the machine's own least time of each part to that.
    """

    seconds: tuple[float, ...]
    slower: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepRows(Columns):
    """One time of n deployments.

    Attributes:
        seconds: (n, parts) as in `Parts`.
        slower: (n, parts) as in `Parts`.
        machine: (n, features) columns `FEATURES`.
    """

    seconds: Matrix
    slower: Matrix
    machine: Matrix

    @classmethod
    def of(
        cls,
        parts: "Callable[[Query, float], Parts]",
        queries: Sequence[Query],
        threads: Sequence[float],
    ) -> "StepRows":
        """Rows of n queries, each at a number of threads."""
        each = [parts(query, own) for query, own in zip(queries, threads, strict=True)]
        features = [_features(query, own) for query, own in zip(queries, threads, strict=True)]
        matrix = np.array(features, dtype=np.float64).reshape(-1, len(FEATURES))
        return cls(
            np.array([one.seconds for one in each]), np.array([one.slower for one in each]), matrix
        )


def machine_of(query: Query) -> Machine:
    """The figures of the devices of a deployment.

    Raises:
        UnanswerableQuery: the sheet of a processor lacks cores, clock or peaks.
        UnknownBandwidth, UnknownPrecision: a sheet lacks bandwidth or peaks.
    """
    integers = query.deployment.engine.name == "llama.cpp"
    return _machine(query.device, integers, query.deployment.pool.parallelism.tensor)


@lru_cache(maxsize=4096)
def _machine(device: Device, integers: bool, nodes: int) -> Machine:
    bandwidth = device.bandwidth_gbs * 1e9 * nodes
    if device.kind == "gpu":
        units = float(device.compute_units or 1)
        rate, wide = (device.peak(name) * 1e12 / units for name in ("fp32", "fp16"))
        return Machine(units, bandwidth, rate, max(rate, wide), rate, 1.0)
    core = core_of(device)
    if core is None or device.compute_units is None:
        raise UnanswerableQuery(
            f"Language models on {device.name} need the processor's compute_units (cores), "
            "boost_clock_mhz and peak_tflops.fp32, or a microarchitecture that is known."
        )
    hertz = 1e6 * (device.boost_clock_mhz or 1e3 * core.clock_ghz)
    vector = core.integer_bits / 16 * (DOT if core.dot else 1.0)
    wide = max(vector, core.int8 / 16) if integers else vector * core.bf16 / core.fp32
    cores = float(device.compute_units * nodes)
    rates = vector * hertz, wide * hertz, core.fp32 * hertz
    return Machine(cores, bandwidth, *rates, float(nodes))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a model that times follow from.

    Attributes:
        weights: bytes of the weights that any token is multiplied with.
        parameters: number of weights that one token is multiplied with.
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
    """The sizes of a model, without its table of embeddings where the output has its own."""
    active, every = model.active_parameters(), model.parameters()
    read = every if model.tied_embeddings else every - model.table_parameters()
    weights = model.weight_bytes() * read / every
    return Sizes(weights, active, active / read, len(model.layers), model.hidden_size)


def threads_of(query: Query) -> list[float]:
    """Numbers of threads that a deployment may run: those of its software, else any up to all.

    An engine is taken to run as many threads as are fastest.
    """
    cores = machine_of(query).cores
    if query.device.kind == "gpu":
        return [cores]
    given = query.software.threads
    if given is not None:
        return [min(float(given), cores)]
    most = int(min(cores, MOST_THREADS))
    return [float(own) for own in (*range(1, min(most, EACH) + 1), *range(EACH + 4, most + 1, 4))]


def in_flight(query: Query) -> float:
    """Requests that a step works on."""
    deployment = query.deployment
    most = deployment.engine.max_sequences or USUAL_SEQUENCES
    return min(max(1.0, deployment.load.concurrency or 1.0), float(most))


def decode_parts(query: Query, threads: float) -> Parts:
    """`DECODE` of the time for each token after the first, with a number of threads."""
    machine, deployment = machine_of(query), query.deployment
    model, number, load = sizes_of(deployment.model), in_flight(query), deployment.load
    served = deployment.engine.name == "vllm"
    context = max(1, int(load.input_tokens + load.output_tokens / 2.0))
    cache = number * deployment.model.cache_bytes(context)
    weights = model.weights * min(1.0, model.share * number)
    operations = 2.0 * model.parameters
    prompts = operations * prompt_tokens(query) / max(load.output_tokens, 1.0)
    seconds = (
        weights / USUAL_BANDWIDTH,
        cache / USUAL_BANDWIDTH,
        model.layers * LAYER_S,
        (number - 1.0) * operations / USUAL_RATE,
        HOST_S * served,
        (number - 1.0) * prompts / USUAL_RATE,
        (number - 1.0) * HOST_S / 10.0,
    )
    memory, vector, wide = _slower(machine, threads)
    if query.device.kind == "gpu":
        memory = (1.0 - UNPACKED) * memory + UNPACKED * vector
    return Parts(seconds, (memory, memory, 0.0, (vector + wide) / 2.0, 0.0, wide, 0.0))


def prompt_parts(query: Query, threads: float) -> Parts:
    """`PROMPT` of the time to the first token, with a number of threads."""
    machine, deployment = machine_of(query), query.deployment
    model, number, tokens = sizes_of(deployment.model), in_flight(query), prompt_tokens(query)
    served = deployment.engine.name == "vllm"
    operations = 2.0 * model.parameters * tokens
    attention = 2.0 * model.layers * model.hidden * tokens * tokens
    weights = model.weights * min(1.0, model.share * tokens)
    seconds = (
        operations / USUAL_RATE,
        attention / USUAL_RATE,
        model.layers * LAYER_S,
        weights / USUAL_BANDWIDTH,
        model.layers * tokens * TOKEN_S,
        HOST_S * served,
        (number - 1.0) * operations / USUAL_RATE,
    )
    memory, vector, wide = _slower(machine, threads)
    return Parts(seconds, (wide, vector, 0.0, memory, vector, 0.0, wide))


def prompt_tokens(query: Query) -> float:
    """Tokens of a prompt that are not in a prefix cache."""
    load = query.deployment.load
    return max(1.0, load.input_tokens * (1.0 - load.cached_share))


def _slower(machine: Machine, threads: float) -> tuple[float, float, float]:
    """Logarithms of times of bytes, vector operations and wide ones over those of `Parts`."""
    memory = np.log(USUAL_BANDWIDTH / machine.bandwidth)
    vector = np.log(USUAL_RATE / (machine.rate * threads))
    wide = np.log(USUAL_RATE / (machine.wide_rate * threads))
    return float(memory), float(vector), float(wide)


def _features(query: Query, threads: float) -> tuple[float, ...]:
    machine = machine_of(query)
    rates = machine.rate, machine.wide_rate / machine.rate, machine.float_rate
    sizes = (threads, machine.nodes, machine.bandwidth, *rates)
    return tuple(np.log(sizes))
