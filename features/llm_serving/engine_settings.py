"""Default settings of inference engines, and how many sequences fit on a data-parallel rank."""

from dataclasses import dataclass
from typing import Final, Self

from forerun.data.device import Device
from forerun.data.language_models.deployment import Engine, LlmDeployment, Parallelism
from forerun.features.llm_serving.device_bytes import cache_bytes, free_bytes

LARGE_GIB: Final = 70.0
"""Device memory from which vLLM uses its defaults for large GPUs (vLLM 0.15, `EngineArgs`)."""
NOT_LARGE: Final = "ampere"
"""Architecture whose GPUs get vLLM's defaults for small ones despite that much memory.

vLLM looks for "a100" in the device name. Names are not features here, and only the A100 and its
export variant have so much memory in this architecture.
"""
SEQUENCES: Final = 2048
TOKENS: Final = 8192
SMALL_SEQUENCES: Final = 256
SMALL_TOKENS: Final = 2048
PROCESSOR_SEQUENCES: Final = 128
"""Default of vLLM's server on CPUs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an iteration of one data-parallel rank.

    Attributes:
        tokens: token budget of an iteration.
        sequences: most sequences that decode together. Bounds are the engine's setting, memory (a
            sequence holds its cache halfway through the answer, or all it will need if the engine
            `reserves`), and the token budget: beyond it, more requests would end in each iteration
            than can start.
        admitted: the same by setting and memory alone.
        fits: whether the weights and one prompt fit in memory; if not, `sequences` ignores memory.
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
        startable = admitted
        if mixes(deployment.engine) and deployment.prefill is None:
            startable = 1.0 + tokens / _tokens_per_sequence(deployment)
        prompt, share = deployment.load.input_tokens, 1.0 if reserves(deployment.engine) else 0.5
        length = prompt + share * deployment.load.output_tokens
        prompts = sequences_in_memory(deployment, device, parallelism, prompt)
        room = sequences_in_memory(deployment, device, parallelism, length)
        fits = prompts is None or prompts >= 1.0
        if room is not None and fits:
            admitted = min(admitted, max(room, 1.0))
        return cls(tokens, min(admitted, startable), admitted, fits)


def _tokens_per_sequence(deployment: LlmDeployment) -> float:
    """Tokens in a mixed iteration per sequence that it decodes, including those of new prompts."""
    engine, further = deployment.engine, max(deployment.load.output_tokens - 1.0, 1.0)
    started = tokens_per_iteration(engine) / further
    return 1.0 + engine.draft_tokens + started * uncached_tokens(deployment)


def default_limits(engine: Engine, device: Device) -> tuple[int, int]:
    """Most tokens and most sequences in an iteration where no setting is given.

    llama.cpp gets one slot, because only single-stream runs were measured; without `--parallel`,
    its server starts four (ggml-org/llama.cpp#16736).
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
    """Sequences whose cache fits in the memory that weights leave; None if memory is unknown.

    Args:
        deployment: its model and engine are used.
        device: the device type.
        parallelism: parallelism of a worker.
        tokens: length of a sequence.
    """
    model = deployment.model
    free = free_bytes(model, device, deployment.engine, parallelism)
    if free is None:
        return None
    cache = cache_bytes(model, int(tokens), parallelism.tensor) / parallelism.pipeline
    return free / max(cache, 1.0)


def mixes(engine: Engine) -> bool:
    """Whether an iteration can both prefill and decode; SGLang's do not by default."""
    return engine.chunked_prefill and engine.name != "sglang"


def reserves(engine: Engine) -> bool:
    """Whether a request starts only once there is memory for its whole answer.

    TensorRT-LLM reserves memory by default (`GUARANTEED_NO_EVICT`); other engines preempt sequences
    when memory runs out, and restart them.
    """
    return engine.name == "trtllm"


def uncached_tokens(deployment: LlmDeployment) -> float:
    """Prompt tokens that miss the prefix cache, at least one."""
    load = deployment.load
    return max(load.input_tokens * (1.0 - load.cached_share), 1.0)


def tokens_per_iteration(engine: Engine) -> float:
    """Tokens that a sequence gains in an iteration: one, plus the accepted draft tokens."""
    return 1.0 + sum(engine.draft_acceptance**k for k in range(1, engine.draft_tokens + 1))
