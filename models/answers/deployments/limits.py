"""The limits of an answer about a deployed language model, in words."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from forerun.data.language_models.engine_formats import awq_not_run, not_run
from forerun.data.language_models.model import LanguageModel
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import in_step
from forerun.features.llm_serving.memory import MOST_TENSOR, PoolMemory
from forerun.models.answers.deployments.arrivals import places
from forerun.models.answers.evidence import distinct
from forerun.models.answers.wording import in_words
from forerun.models.domain.device_novelty import part_limits
from forerun.models.limit import LATENCY, PEAK_MEMORY, POWER, Limit
from forerun.models.prediction import Prediction

STARTED_TOGETHER: Final = Limit(
    "ttft_ms is the mean of a benchmark whose clients start at once; it is shorter where "
    "requests arrive one by one (give requests_per_s)",
    LATENCY,
    "note",
)
WAITS: Final = "together, so each first token waits for all their prompts"
IN_STEP: Final = Limit(
    "the engine does not decode while it reads prompts: unless output_variation is given, all "
    f"requests in flight start {WAITS}",
    LATENCY,
    "note",
)
ONE_BY_ONE: Final = Limit(
    "ttft_ms assumes that requests arrive one by one; it is longer where many start at once",
    LATENCY,
    "note",
)
DISAGGREGATED: Final = Limit(
    "prompts have separate prefill workers; times per token of such runs are off by 9 % on average",
    LATENCY,
    "transfer",
)
POWER_OF_ARRIVALS: Final = Limit(
    "servers were measured with a constant number of requests in flight, none at a given "
    "request rate",
    POWER,
    "transfer",
)
POWER_OF_PLACES: Final = Limit(
    "some requests wait: it is the power of a full server, whose number of concurrent "
    "requests is computed from the memory",
    POWER,
    "transfer",
)
SOUND_TOKENS_PER_S: Final = 50.0
"""Frames per second after Whisper's convolutions (arXiv 2212.04356, section 2.2)."""
ENCODED: Final = [
    Limit("no encoder-decoder was measured; times follow from its layers", LATENCY),
    Limit("no encoder-decoder was measured; power is that of a decoder of its size", POWER),
]


def limits_of(
    query: Query,
    time: Prediction,
    power: Prediction | None,
    memory: Sequence[PoolMemory],
) -> tuple[Limit, ...]:
    """All limits of an answer: of the model, the deployment, times, power and memory."""
    of_power = [] if power is None else [replace(limit, metric=POWER) for limit in power.limits]
    if power is not None:
        of_power += _power_at_load(query)
    of_memory = [Limit(pool.sentence(), PEAK_MEMORY, "refusal") for pool in memory if not pool.fits]
    found = map(in_words, (*time.limits, *of_power, *of_memory))
    model, load = query.deployment.model, query.deployment.load
    length = of_lengths(model, load.input_tokens, load.output_tokens)
    apart = [] if query.deployment.prefill is None else [DISAGGREGATED]
    together = IN_STEP if in_step(query.deployment) else STARTED_TOGETHER
    first = [ONE_BY_ONE if load.concurrency is None else together]
    if query.device.kind == "cpu" or (load.concurrency or 2.0) <= 1.0:
        first = []
    apart += [] if model.encoder is None else ENCODED
    return (*_misspelt(model), *length, *of_servers(query), *apart, *distinct(found), *first)


def sound_limits(query: Query, requests_per_s: float | None) -> tuple[Limit, ...]:
    """Seconds of audio processed per second, for models that read audio."""
    encoder = query.deployment.model.encoder
    if encoder is None or encoder.tokens is None or requests_per_s is None:
        return ()
    seconds = encoder.tokens / SOUND_TOKENS_PER_S
    line = f"{seconds * requests_per_s:,.0f} seconds of audio per second, {seconds:.0f} per request"
    return (Limit(line, LATENCY, "note"),)


def _power_at_load(query: Query) -> list[Limit]:
    """The limit that no server was measured under such a load; none for ordinary closed loops."""
    in_flight = query.deployment.load.concurrency
    if in_flight is None:
        return [POWER_OF_ARRIVALS]
    return [POWER_OF_PLACES] if in_flight > places(query) else []


def of_lengths(model: LanguageModel, input_tokens: float, output_tokens: float) -> list[Limit]:
    """A refusal if a request is longer than the model's context, per side for encoder-decoders.

    Args:
        model: the model.
        input_tokens: length of the prompt.
        output_tokens: length of the output.
    """
    parts = [("requests have", input_tokens + output_tokens, "the model takes", model.most_tokens)]
    if model.encoder is not None:
        parts = [
            ("prompts have", input_tokens, "the encoder takes", model.encoder.most_tokens),
            ("answers have", output_tokens, "the decoder writes", model.most_tokens),
        ]
    return [
        Limit(f"{subject} {tokens:,.0f} tokens, and {which} {most:,}", severity="refusal")
        for subject, tokens, which, most in parts
        if most is not None and tokens > most
    ]


def _misspelt(model: LanguageModel) -> list[Limit]:
    return [
        Limit(f"{line}: this field of the configuration is unknown and was ignored")
        for line in model.misspelt_fields
    ]


def of_servers(query: Query) -> list[Limit]:
    """Limits of the server: the engine does not run the model on the device, the device is a
    partition of another, or tensor parallelism exceeds the devices joined by links.
    """
    deployment = query.deployment
    if (why := not_run(deployment.engine.name, query.device, deployment.model)) is not None:
        return [Limit(why, severity="refusal")]
    found = [*part_limits(query.device)]
    if (why := awq_not_run(deployment.engine.name, query.device, deployment.model)) is not None:
        found.append(Limit(f"{why}; those of GPTQ run"))
    pools = [pool for pool in (deployment.pool, deployment.prefill) if pool is not None]
    tensor = max(pool.parallelism.tensor for pool in pools)
    most = query.device.node_devices or MOST_TENSOR
    if tensor <= most:
        return found
    why = (
        f"tensor parallel {tensor} exceeds the {most} devices that links join: times assume "
        "the link within a server; a network between servers is slower"
    )
    return [*found, Limit(why)]
