"""Settings that an engine takes where none are given, and how many sequences fit a rank."""

from dataclasses import dataclass
from typing import Final, Self

from forerun.data.device import Device
from forerun.data.language_models.deployment import Engine, LlmDeployment, Parallelism
from forerun.features.llm_serving.device_bytes import cache_bytes, free_bytes

LARGE_GIB: Final = 70.0
"""Memory from which on vLLM takes its defaults for large GPUs (vLLM 0.15, `EngineArgs`)."""
NOT_LARGE: Final = "ampere"
"""Architecture of GPUs that have such memory and still get vLLM's defaults for small ones.

vLLM goes by "a100" in the name. A name is no feature here; of this architecture, only the A100 and
its variant for export have so much memory.
"""
SEQUENCES: Final = 2048
TOKENS: Final = 8192
SMALL_SEQUENCES: Final = 256
SMALL_TOKENS: Final = 2048


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an iteration of one data-parallel rank.

    Attributes:
        tokens: most tokens of an iteration.
        sequences: most sequences, by the engine's setting and by memory.
        fits: whether weights and one sequence fit the memory; where not, `sequences` is that of
            the setting.
    """

    tokens: float
    sequences: float
    fits: bool

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, parallelism: Parallelism) -> Self:
        """Limits of a worker with that parallelism."""
        most_tokens, most_sequences = default_limits(deployment.engine, device)
        tokens = float(deployment.engine.max_batched_tokens or most_tokens)
        sequences = float(deployment.engine.max_sequences or most_sequences)
        room = sequences_in_memory(deployment, device, parallelism)
        fits = room is None or room >= 1.0
        if room is not None and fits:
            sequences = min(sequences, room)
        return cls(tokens, sequences, fits)


def default_limits(engine: Engine, device: Device) -> tuple[int, int]:
    """Most tokens and most sequences of an iteration where none are given."""
    large = device.memory_gib is None or device.memory_gib >= LARGE_GIB
    if engine.name == "vllm":
        large = large and device.architecture != NOT_LARGE
        return (TOKENS, 1024) if large else (SMALL_TOKENS, SMALL_SEQUENCES)
    return (TOKENS, SEQUENCES) if large else (TOKENS // 2, SEQUENCES)


def sequences_in_memory(
    deployment: LlmDeployment, device: Device, parallelism: Parallelism
) -> float | None:
    """Sequences of mean length that fit next to the weights; None where memory is not known."""
    load, model = deployment.load, deployment.model
    free = free_bytes(model, device, deployment.engine, parallelism)
    if free is None:
        return None
    context = int(load.input_tokens + load.output_tokens / 2.0)
    held = cache_bytes(model, context, parallelism.tensor) / parallelism.pipeline
    return free / max(held, 1.0)
