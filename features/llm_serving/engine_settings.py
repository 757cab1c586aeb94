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
PROCESSOR_SEQUENCES: Final = 128
"""Those of vLLM's server on processors."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an iteration of one data-parallel rank.

    Attributes:
        tokens: most tokens of an iteration.
        sequences: most sequences that decode together: by the engine's setting, by its memory, of
            which each holds what it has halfway through its answer, or all that it will need
            (`reserves`), and, next to one, by the prompts that the tokens of an iteration leave
            room for. More would end in each iteration than can begin.
        admitted: the same by setting and memory alone.
        fits: whether weights and one prompt fit the memory; where not, `sequences` is that of
            the setting.
    """

    tokens: float
    sequences: float
    admitted: float
    fits: bool

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, parallelism: Parallelism) -> Self:
        """Limits of a worker with that parallelism."""
        most_tokens, most_sequences = default_limits(deployment.engine, device)
        tokens = float(deployment.engine.max_batched_tokens or most_tokens)
        admitted = float(deployment.engine.max_sequences or most_sequences)
        begun = admitted
        if mixes(deployment.engine) and deployment.prefill is None:
            begun = 1.0 + tokens / _tokens_per_sequence(deployment)
        prompt, share = deployment.load.input_tokens, 1.0 if reserves(deployment.engine) else 0.5
        held = prompt + share * deployment.load.output_tokens
        one = sequences_in_memory(deployment, device, parallelism, prompt)
        room = sequences_in_memory(deployment, device, parallelism, held)
        fits = one is None or one >= 1.0
        if room is not None and fits:
            admitted = min(admitted, max(room, 1.0))
        return cls(tokens, min(admitted, begun), admitted, fits)


def _tokens_per_sequence(deployment: LlmDeployment) -> float:
    """Tokens of a mixed iteration for each sequence that it decodes, with those of new prompts."""
    engine, after = deployment.engine, max(deployment.load.output_tokens - 1.0, 1.0)
    begun = tokens_per_iteration(engine) / after
    return 1.0 + engine.draft_tokens + begun * uncached_tokens(deployment)


def default_limits(engine: Engine, device: Device) -> tuple[int, int]:
    """Most tokens and most sequences of an iteration where none are given.

    llama.cpp has one slot unless more are given, since runs of one stream alone were measured; its
    server starts four where `--parallel` gives none (ggml-org/llama.cpp#16736).
    """
    if engine.name == "llama.cpp":
        return SMALL_TOKENS, 1
    if device.kind == "cpu":
        return SMALL_TOKENS, PROCESSOR_SEQUENCES
    large = device.memory_gib is None or device.memory_gib >= LARGE_GIB
    if engine.name == "vllm":
        large = large and device.architecture != NOT_LARGE
        return (TOKENS, 1024) if large else (SMALL_TOKENS, SMALL_SEQUENCES)
    return (TOKENS, SEQUENCES) if large else (TOKENS // 2, SEQUENCES)


def sequences_in_memory(
    deployment: LlmDeployment,
    device: Device,
    parallelism: Parallelism,
    tokens: float,
) -> float | None:
    """Sequences that fit next to the weights; None where memory is not known.

    Args:
        deployment: gives the model and the engine.
        device: each of the devices.
        parallelism: that of a worker.
        tokens: length of a sequence.
    """
    model = deployment.model
    free = free_bytes(model, device, deployment.engine, parallelism)
    if free is None:
        return None
    held = cache_bytes(model, int(tokens), parallelism.tensor) / parallelism.pipeline
    return free / max(held, 1.0)


def mixes(engine: Engine) -> bool:
    """Whether one iteration holds prompts and decoded tokens; SGLang's do not by default."""
    return engine.chunked_prefill and engine.name != "sglang"


def reserves(engine: Engine) -> bool:
    """Whether a request starts only where there is memory for its whole answer.

    TensorRT-LLM does so by default (`GUARANTEED_NO_EVICT`); others give sequences up where memory
    runs out, and start them again.
    """
    return engine.name == "trtllm"


def uncached_tokens(deployment: LlmDeployment) -> float:
    """Tokens of a prompt that are not in the prefix cache, at least one."""
    load = deployment.load
    return max(load.input_tokens * (1.0 - load.cached_share), 1.0)


def tokens_per_iteration(engine: Engine) -> float:
    """Tokens that a sequence gains in an iteration: one, and the accepted ones of the draft."""
    return 1.0 + sum(engine.draft_acceptance**k for k in range(1, engine.draft_tokens + 1))
