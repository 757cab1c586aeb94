"""Memory of a deployment's devices: what it needs, what fits, and the smallest parallelism."""

from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal

from forerun.data.device import Device
from forerun.data.device_slices import no_link
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.model import LanguageModel, Mixer
from forerun.features.llm_serving.device_bytes import (
    GIB,
    OVERHEAD_BYTES,
    USUAL_SEQUENCES,
    activation_bytes,
    bytes_set_aside,
    cache_bytes,
    free_bytes,
    memory_share,
    weight_bytes,
)
from forerun.features.llm_serving.operators import layer_counts

MOST_TENSOR: Final = 8
"""Highest tensor parallelism within a server; larger models add pipeline parallelism."""
MOST_PIPELINE: Final = 16


Phase = Literal["both", "prefill", "decode"]
MIB: Final = 2.0**20


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Memory use of one device of a pool, MiB, and the capacity of its cache.

    Attributes:
        weights_mib: weights in their formats.
        cache_mib: keys, values and states of the requests in flight, at least one, at full length;
            of all slots if llama.cpp sets them aside.
        activations_mib: activations and logits of the largest iteration.
        overhead_mib: device context, CUDA graphs and collective buffers.
        reserved_mib: memory that the engine reserves at its start.
        usable_mib: memory of the device.
        cache_bytes_per_token: keys and values of one token at the load's lengths, bytes.
        cache_tokens: tokens that fit in the cache of one data-parallel rank; 0 if the weights alone
            exceed the reserved memory.
        largest_concurrency: requests of the load's lengths that fit in the caches of all ranks.
        phase: phase that the workers serve.
    """

    weights_mib: float
    cache_mib: float
    activations_mib: float
    overhead_mib: float
    reserved_mib: float
    usable_mib: float
    cache_bytes_per_token: float
    cache_tokens: float
    largest_concurrency: float
    phase: Phase = "both"

    @property
    def needed_mib(self) -> float:
        """Weights, cache of the requests in flight, activations and overhead."""
        return self.weights_mib + self.cache_mib + self.activations_mib + self.overhead_mib

    @property
    def fits(self) -> bool:
        """Whether the weights and one request fit."""
        return self.largest_concurrency >= 1.0

    def sentence(self) -> str:
        """One sentence on the weights, the memory, and how many requests fit."""
        of = "" if self.phase == "both" else f"{self.phase}: "
        needed, reserved, usable = (
            f"{mib / 1024:,.1f}" for mib in (self.needed_mib, self.reserved_mib, self.usable_mib)
        )
        if not self.fits:
            taken = f"{needed} GiB of each device, and the engine may use {reserved} of {usable}"
            return f"{of}does not fit: it needs {taken}"
        weights = f"{self.weights_mib / 1024:,.1f} of {usable} GiB"
        room = f"{self.largest_concurrency:,.0f}"
        text = f"{of}weights take {weights}; the cache has room for {room} such requests"
        if self.needed_mib < self.reserved_mib * (1.0 - 1e-9):
            return text
        return f"{text} at full length, fewer than are in flight"


def pool_memory(
    model: LanguageModel,
    device: Device,
    load: RequestLoad,
    engine: Engine,
    pool: Pool,
    in_flight: float,
) -> PoolMemory:
    """Memory of one device.

    Args:
        model: the model.
        device: a device with known memory.
        load: lengths of the requests.
        engine: its settings bound the share of memory and the largest iteration.
        pool: workers and their parallelism.
        in_flight: requests in flight on all workers.
    """
    assert device.memory_gib is not None
    usable = device.memory_gib * GIB
    degrees = pool.parallelism
    weights = weight_bytes(model, degrees)
    activations = activation_bytes(model, engine, degrees)
    length = int(load.input_tokens + load.output_tokens)
    whole = cache_bytes(model, length, degrees.tensor) / degrees.pipeline
    ranks = pool.workers * degrees.attention_data
    reserved = memory_share(engine) * usable
    free = max(0.0, free_bytes(model, device, engine, degrees) or 0.0)
    room = inf if whole == 0.0 else free / whole
    most, aside = float(engine.max_sequences or inf), bytes_set_aside(model, engine, degrees)
    if aside is not None:
        room = min(room, float(engine.max_sequences or 1))
    at_once = max(1.0, min(in_flight / ranks, room, most))
    return PoolMemory(
        weights_mib=weights / MIB,
        cache_mib=(at_once * whole if aside is None else aside) / MIB,
        activations_mib=activations / MIB,
        overhead_mib=OVERHEAD_BYTES / MIB,
        reserved_mib=reserved / MIB,
        usable_mib=usable / MIB,
        cache_bytes_per_token=whole / length,
        cache_tokens=room * length,
        largest_concurrency=float(int(room)) * ranks,
    )


def smallest_parallelism(
    model: LanguageModel,
    device: Device,
    load: RequestLoad,
    engine: Engine,
    given: Parallelism,
    devices: int = 0,
) -> Parallelism:
    """The smallest parallelism whose devices hold the weights and one request.

    Given a number of devices, it is the smallest that also has room for every request in flight,
    else the one with room for most.

    Degrees of tensor parallelism are powers of two that divide the heads, up to `MOST_TENSOR`;
    beyond that, pipeline parallelism is added. llama.cpp only has pipeline parallelism, its default
    split; devices without a link have neither.

    Args:
        model: the model.
        device: a device with known memory.
        load: lengths of the requests.
        engine: its settings bound the share of memory and the largest iteration.
        given: the other degrees; its tensor parallelism is ignored.
        devices: number of devices of all workers together; 0 if open.

    Raises:
        UnanswerableQuery: the model fits with none of the degrees tried; the message says how much
            memory it needs.
    """
    alone = no_link(device) is not None
    tensors = [1] if alone or engine.name == "llama.cpp" else _tensor_degrees(model)
    degrees = [(each, given.pipeline) for each in tensors]
    tensor, pipeline = degrees[-1][0], 2 * given.pipeline
    while not alone and given.pipeline == 1 and pipeline <= min(MOST_PIPELINE, len(model.layers)):
        degrees.append((tensor, pipeline))
        pipeline *= 2
    capacity: dict[Parallelism, float] = {}
    for tensor, pipeline in degrees:
        tried = Parallelism(tensor, pipeline, given.attention_data, given.expert)
        if capacity and tried.devices > devices:
            break
        pool = Pool(tried, max(1, devices // tried.devices))
        known = pool_memory(model, device, load, engine, pool, 1.0)
        if known.fits:
            most = pool.workers * tried.attention_data * (engine.max_sequences or USUAL_SEQUENCES)
            capacity[tried] = min(known.largest_concurrency, float(most))
    if capacity:
        sufficient = (one for one, room in capacity.items() if room >= (load.concurrency or 0.0))
        return next(sufficient, max(capacity, key=capacity.__getitem__))
    request = known.cache_bytes_per_token * (load.input_tokens + load.output_tokens) / MIB
    needed = known.weights_mib + known.activations_mib + known.overhead_mib + request
    enough = (device.memory_gib or 0.0) * needed / known.reserved_mib
    raise UnanswerableQuery(
        f"The weights and one request do not fit {device.name}: with tensor parallel {tensor} and "
        f"pipeline parallel {pipeline}, the most that is tried, they need {needed / 1024:.1f} GiB "
        f"of each device, and the engine may use {known.reserved_mib / 1024:.1f}. Devices of "
        f"{enough:,.0f} GiB would do with these degrees; or give larger ones, or another format of "
        "weights."
    )


def _tensor_degrees(model: LanguageModel) -> list[int]:
    """Powers of two up to `MOST_TENSOR` that divide the heads of every layer, starting with 1."""
    tried = [2**power for power in range(MOST_TENSOR.bit_length())]
    return [tensor for tensor in tried if divides_heads(model, tensor)]


def divides_heads(model: LanguageModel, tensor: int) -> bool:
    """Whether engines can divide every layer's attention over `tensor` devices."""
    mixers = {layer.mixer for layer, _ in layer_counts(model)}
    return all(_divides(tensor, mixer) for mixer in mixers)


def _divides(tensor: int, mixer: Mixer | None) -> bool:
    """Whether heads divide evenly; key-value heads fewer than the devices are replicated."""
    match mixer:
        case Attention():
            keys = mixer.key_value_heads
            return mixer.query_heads % tensor == 0 and (keys % tensor == 0 or tensor % keys == 0)
        case LatentAttention() | CompressedAttention():
            return mixer.query_heads % tensor == 0
        case _:
            return True


def serving_memory(deployment: LlmDeployment, device: Device, in_flight: float) -> list[PoolMemory]:
    """Memory of one device of each pool: of `both` phases, or of `prefill` and `decode`.

    Args:
        deployment: the deployment.
        device: a device with known memory.
        in_flight: requests in flight on all workers.
    """
    pools: dict[Phase, Pool] = {"both": deployment.pool}
    if deployment.prefill is not None:
        pools = {"prefill": deployment.prefill, "decode": deployment.pool}
    parts = (deployment.model, device, deployment.load, deployment.engine)
    return [
        replace(pool_memory(*parts, pool, in_flight), phase=phase) for phase, pool in pools.items()
    ]
