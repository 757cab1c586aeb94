"""Memory of the devices of a deployment."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from forerun.data.language_models.deployment import Parallelism
from forerun.data.query import Query
from forerun.features.llm_serving.device_bytes import activation_bytes
from forerun.features.llm_serving.memory import serving_memory

Phase = Literal["both", "prefill", "decode"]
MIB: Final = 2.0**20


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Memory of one device, MiB, and what it has room for.

    Attributes:
        phase: what the workers serve.
        fits: whether the weights and one request fit.
        weights_mib: weights.
        cache_mib: keys, values and states of the requests in flight, at least of one, at the end
            of their answers.
        activations_mib: activations of the largest iteration.
        overhead_mib: context of the device, graphs, communication.
        needed_mib: all of these together.
        reserved_mib: what the engine reserves, used or not.
        usable_mib: memory of the device.
        cache_bytes_per_token: keys and values of one token, bytes.
        cache_tokens: tokens that the cache of one worker has room for.
        largest_concurrency: requests that the caches of all workers have room for.
    """

    phase: Phase
    fits: bool
    weights_mib: float
    cache_mib: float
    activations_mib: float
    overhead_mib: float
    needed_mib: float
    reserved_mib: float
    usable_mib: float
    cache_bytes_per_token: float
    cache_tokens: float
    largest_concurrency: float

    def sentence(self) -> str:
        """The weights, the memory, and the requests that there is room for."""
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


def bytes_on_processors(query: Query) -> float:
    """Bytes of weights, keys and values, and activations of a deployment on processors."""
    deployment = query.deployment
    engine, load = deployment.engine, deployment.load
    length = int(load.input_tokens + load.output_tokens)
    cache = max(1.0, load.concurrency or 1.0) * deployment.model.cache_bytes(length)
    return (
        deployment.model.weight_bytes()
        + cache
        + activation_bytes(deployment.model, engine, Parallelism())
    )


def memory_of(query: Query, in_flight: float) -> list[PoolMemory]:
    """Memory of one device by phase; empty where the device's memory is not known.

    Args:
        query: a deployment on a device.
        in_flight: requests that are served at a time.
    """
    if query.device.memory_gib is None:
        return []
    phases: tuple[Phase, ...] = get_args(Phase)
    known = serving_memory(query.deployment, query.device, in_flight)
    return [
        PoolMemory(
            phase=phase,
            fits=own.fits,
            weights_mib=own.weights / MIB,
            cache_mib=own.cache / MIB,
            activations_mib=own.activations / MIB,
            overhead_mib=own.overhead / MIB,
            needed_mib=own.needed / MIB,
            reserved_mib=own.reserved / MIB,
            usable_mib=own.usable / MIB,
            cache_bytes_per_token=own.cache_per_token,
            cache_tokens=own.room_tokens,
            largest_concurrency=own.largest_concurrency,
        )
        for phase in phases
        if (own := known.get(phase)) is not None
    ]
