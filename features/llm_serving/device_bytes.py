"""Memory use of one device of a worker, bytes: weights, KV cache, activations, and free memory."""

from functools import lru_cache
from typing import Final

from forerun.data.device import Device
from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.deployment import Engine, Parallelism
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import LanguageModel, Mixer
from forerun.data.language_models.recurrent import Recurrent
from forerun.data.language_models.weights import BYTES
from forerun.features.llm_serving.operators import cache_divided, layer_counts

GIB: Final = 2.0**30
OVERHEAD_BYTES: Final = 1.0 * GIB
"""Device context, loaded kernels, CUDA graphs and collective buffers. An assumption, the same for
every device and engine: it is not fitted to measurements."""
USUAL_BATCHED_TOKENS: Final = 8192
"""Token budget of an iteration where the engine's setting is not given."""
LLAMA_BATCH: Final = 512
"""Tokens in a micro-batch of llama.cpp."""
USUAL_SEQUENCES: Final = 256
"""Most sequences in an iteration where the engine's setting is not given."""


def free_bytes(
    model: LanguageModel, device: Device, engine: Engine, degrees: Parallelism
) -> float | None:
    """Bytes that the engine may use for the KV cache; None if the device's memory is unknown.

    Negative if the weights, or the weights and the cache that is set aside, exceed the memory.
    """
    if device.memory_gib is None:
        return None
    taken = weight_bytes(model, degrees) + activation_bytes(model, engine, degrees)
    free = memory_share(engine) * device.memory_gib * GIB - taken - OVERHEAD_BYTES
    aside = bytes_set_aside(model, engine, degrees)
    return free if aside is None else aside if aside <= free else free - aside


def bytes_set_aside(model: LanguageModel, engine: Engine, degrees: Parallelism) -> float | None:
    """Keys and values for which llama.cpp takes memory at its start: those of the whole context of
    each slot (`-c`, divided by `-np`). None of other engines, and where no context is given.
    """
    if engine.name != "llama.cpp" or engine.max_request_tokens is None:
        return None
    slot = cache_bytes(model, engine.max_request_tokens, degrees.tensor) / degrees.pipeline
    return (engine.max_sequences or 1) * slot


def memory_share(engine: Engine) -> float:
    """Share of a device's memory that the engine may take; llama.cpp has no such setting."""
    return 1.0 if engine.name == "llama.cpp" else engine.memory_share


@lru_cache(maxsize=1024)
def weight_bytes(model: LanguageModel, degrees: Parallelism) -> float:
    """Bytes of weights on one device.

    Routed experts are spread over the devices of all ranks. Of attention, only the weights of heads
    are divided; each device has a copy of the rest and of the routers. An encoder is divided by
    tensor parallelism, but not by pipeline parallelism.
    """
    hidden, tensor, formats = model.hidden_size, degrees.tensor, model.formats
    tables = model.table_parameters() * BYTES[formats.unquantized]
    if not model.tied_embeddings:
        tables += model.table_parameters() * BYTES[formats.head]
    held = tables / tensor
    for (layer, forms), count in layer_counts(model).items():
        if layer.mixer is not None:
            held += count * mixer_weights(layer.mixer, hidden, tensor) * BYTES[forms.mixer]
        for part in layer.feed_forward:
            match part:
                case Dense():
                    held += count * part.parameters(hidden) * BYTES[forms.dense] / tensor
                case Experts():
                    routed = part.experts * part.expert(hidden) * BYTES[forms.experts]
                    shared = part.shared(hidden) * BYTES[forms.shared]
                    router = part.router(hidden) * BYTES[formats.unquantized]
                    on_rank = routed / degrees.attention_data + shared
                    held += count * (on_rank / tensor + router)
    encoders = (one for one in (model.vision, model.encoder) if one is not None)
    encoded = sum(one.parameters() for one in encoders)
    return held / degrees.pipeline + encoded * BYTES[formats.unquantized] / tensor


def mixer_weights(mixer: Mixer, hidden_size: int, tensor: int) -> float:
    """Number of weights of a mixer on each of its `tensor` tensor-parallel devices."""
    whole = mixer.parameters(hidden_size)
    match mixer:
        case Attention():
            pairs = 1 if mixer.values_are_keys else 2
            width = mixer.head_dim + (pairs - 1) * mixer.value_head_dim
            keys = hidden_size * mixer.key_value_heads * width
            index = (mixer.index_heads + 1) * mixer.index_dim if mixer.index_heads else 0
            copied = hidden_size * index
            divided = whole - keys - copied
            return copied + keys / min(tensor, mixer.key_value_heads) + divided / tensor
        case LatentAttention():
            copied = hidden_size * (mixer.key_value_rank + mixer.rotary_dim)
            copied += hidden_size * (mixer.query_rank or 0) + mixer.indexer(hidden_size)
            return copied + (whole - copied) / tensor
        case CompressedAttention():
            copied = hidden_size * (mixer.query_rank + mixer.head_dim)
            copied += mixer.blocks(hidden_size)
            return copied + (whole - copied) / tensor
        case Recurrent():
            return whole / tensor


def cache_bytes(model: LanguageModel, context_tokens: int, tensor: int) -> float:
    """Bytes of keys, values and recurrent states of one sequence, on each tensor-parallel device.

    Key-value heads are divided over devices until each has one; latent vectors are on every device.
    """
    held = 0.0
    for (layer, _), count in layer_counts(model).items():
        mixer = layer.mixer
        if mixer is None:
            continue
        kept = isinstance(mixer, Attention | LatentAttention | CompressedAttention)
        form = model.formats.cache if kept else model.formats.state
        divided = cache_divided(mixer, tensor)
        held += count * mixer.cached(context_tokens) * BYTES[form] / divided
    return held


@lru_cache(maxsize=1024)
def activation_bytes(model: LanguageModel, engine: Engine, degrees: Parallelism) -> float:
    """Bytes of the activations of the largest iteration, in 16 bits, and of its logits, in 32."""
    of_llama = engine.name == "llama.cpp"
    tokens = LLAMA_BATCH if of_llama else engine.max_batched_tokens or USUAL_BATCHED_TOKENS
    sequences = engine.max_sequences or (1 if of_llama else USUAL_SEQUENCES)
    parts = (part for layer, _ in layer_counts(model) for part in layer.feed_forward)
    widest = max(map(_inner_width, parts), default=0)
    width = 4 * model.hidden_size + 3 * widest / degrees.tensor
    return tokens * width * 2 + sequences * model.vocabulary / degrees.tensor * 4


def _inner_width(part: Dense | Experts) -> int:
    """Width of the intermediate activations of one token."""
    if isinstance(part, Dense):
        return part.width
    return part.per_token * part.width + part.shared_width
