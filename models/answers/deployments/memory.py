"""Memory per device of a deployment."""

from forerun.data.language_models.deployment import Parallelism
from forerun.data.query import Query
from forerun.features.llm_serving.device_bytes import activation_bytes
from forerun.features.llm_serving.memory import PoolMemory, serving_memory


def bytes_on_processors(query: Query) -> float:
    """Bytes of weights, KV cache and activations of a deployment on CPUs."""
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
    """Memory of one device per phase; empty where the device's memory is unknown.

    Args:
        query: a deployment on a device.
        in_flight: requests served concurrently.
    """
    if query.device.memory_gib is None:
        return []
    return serving_memory(query.deployment, query.device, in_flight)
