"""Settings that an engine takes where none are given, and how many sequences fit a rank."""

from dataclasses import dataclass
from typing import Final, Self

from forerun.data.device import Device
from forerun.data.language_models.deployment import Engine, LlmDeployment, Parallelism
from forerun.features.llm_serving.device_bytes import GIB, cache_bytes, free_bytes

LARGE_GIB: Final = 70.0
"""Memory from which on vLLM takes its defaults for large GPUs (vLLM 0.15, `EngineArgs`)."""
NOT_LARGE: Final = "ampere"
"""Architecture of GPUs that have such memory and still get vLLM's defaults for small ones.

vLLM goes by "a100" in the name. A name is no feature here; of this architecture, only the A100 and
its variant for export have so much memory.
"""
MARGIN: Final = 0.1
"""Share of a device's memory by which what engines take for requests may exceed what is expected:
their own memory share, graphs and buffers are not known, and where weights fill the memory this is
many requests. It was chosen on 65 runs with more in flight than are expected to fit, predicted with
their deployments held out: times to the first token have a median ratio of 0.9 to the measured
ones, and rates one of 1.07; without margin these are 2.2 and 0.93, with requests halfway through
their answers in place of prompts 3.0 and 0.87."""
MOST_AT_ONCE: Final = 1.75
"""Requests that decode at once at most, over those that fit halfway through their answers: the most
in ten such runs with prompts of 1,024 and answers of 8,192 tokens. What grows beyond the memory is
given up and starts again."""
SEQUENCES: Final = 2048
TOKENS: Final = 8192
SMALL_SEQUENCES: Final = 256
SMALL_TOKENS: Final = 2048
PROCESSOR_SEQUENCES: Final = 128
"""Those of vLLM's server on processors; llama.cpp is answered for one request at a time there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an iteration of one data-parallel rank.

    Attributes:
        tokens: most tokens of an iteration.
        sequences: most sequences that decode together: by the engine's setting, by the prompts that
            its memory admits, by what they grow to, and, next to one, by the prompts that the
            tokens of an iteration leave room for. More would end in each iteration than can begin.
        fits: whether weights and one prompt fit the memory; where not, `sequences` is that of
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
        if mixes(deployment.engine) and deployment.prefill is None:
            sequences = min(sequences, 1.0 + tokens / _tokens_per_sequence(deployment))
        prompt = deployment.load.input_tokens
        halfway = prompt + deployment.load.output_tokens / 2.0
        room = sequences_in_memory(deployment, device, parallelism, prompt, spare=MARGIN)
        growing = sequences_in_memory(deployment, device, parallelism, halfway)
        if room is None or growing is None:
            return cls(tokens, sequences, True)
        fits = room >= 1.0
        if fits:
            sequences = min(sequences, room, max(MOST_AT_ONCE * growing, 1.0))
        return cls(tokens, sequences, fits)


def _tokens_per_sequence(deployment: LlmDeployment) -> float:
    """Tokens of a mixed iteration for each sequence that it decodes, with those of new prompts."""
    engine, after = deployment.engine, max(deployment.load.output_tokens - 1.0, 1.0)
    begun = tokens_per_iteration(engine) / after
    return 1.0 + engine.draft_tokens + begun * uncached_tokens(deployment)


def default_limits(engine: Engine, device: Device) -> tuple[int, int]:
    """Most tokens and most sequences of an iteration where none are given."""
    if device.kind == "cpu":
        return SMALL_TOKENS, 1 if engine.name == "llama.cpp" else PROCESSOR_SEQUENCES
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
    spare: float = 0.0,
) -> float | None:
    """Sequences that fit next to the weights; None where memory is not known.

    Args:
        deployment: gives the model and the engine.
        device: each of the devices.
        parallelism: that of a worker.
        tokens: length of a sequence.
        spare: share of a device's memory that they may take beyond what is expected.
    """
    model = deployment.model
    free = free_bytes(model, device, deployment.engine, parallelism)
    if free is None or device.memory_gib is None:
        return None
    held = cache_bytes(model, int(tokens), parallelism.tensor) / parallelism.pipeline
    return (free + spare * device.memory_gib * GIB) / max(held, 1.0)


def mixes(engine: Engine) -> bool:
    """Whether one iteration holds prompts and decoded tokens; SGLang's do not by default."""
    return engine.chunked_prefill and engine.name != "sglang"


def uncached_tokens(deployment: LlmDeployment) -> float:
    """Tokens of a prompt that are not in the prefix cache, at least one."""
    load = deployment.load
    return max(load.input_tokens * (1.0 - load.cached_share), 1.0)


def tokens_per_iteration(engine: Engine) -> float:
    """Tokens that a sequence gains in an iteration: one, and the accepted ones of the draft."""
    return 1.0 + sum(engine.draft_acceptance**k for k in range(1, engine.draft_tokens + 1))
