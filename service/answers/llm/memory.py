"""Memory of the devices of a deployment, as an answer gives it."""

from typing import Final, Literal, get_args

from forerun.data.query import Query
from forerun.features.llm_serving.memory import serving_memory
from forerun.service.schemas.llm.answers import PoolMemoryOut

Phase = Literal["both", "prefill", "decode"]
MIB: Final = 2.0**20


def memory_of(query: Query, in_flight: float) -> list[PoolMemoryOut]:
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
        PoolMemoryOut(
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
