"""What the forward pass of a layer leaves for its backward pass, in bytes of a token.

Widths follow from the layer; for a GPT layer with eager attention and dropout the sum is 34 h +
5 a s, as in Korthikanti et al. 2022 (arXiv 2205.05198, equation 1).
"""

from dataclasses import dataclass
from typing import Final

from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import Layer, Mixer
from forerun.data.language_models.recurrent import Recurrent
from forerun.data.language_models.training import LlmTraining
from forerun.data.number_formats import FORMATS

STATE_CHUNK_TOKENS: Final = 128
"""Tokens after which kernels of recurrent layers keep the state: `chunk_size` of Mamba-2 is 128 or
256, that of the gated delta rule 64."""


@dataclass(frozen=True, slots=True)
class SavedLayer:
    """Bytes of one token that a layer keeps, all of it on one device.

    Attributes:
        whole: what only sequence parallelism divides: inputs of norms, latents.
        inputs: inputs of a part's first products. Sequence parallelism of Megatron-LM divides them
            and gathers them again (Korthikanti et al. 2022, section 4.2.2); DTensor keeps them
            gathered.
        divided: what tensor parallelism divides.
        scores: of `divided`, what selective recomputation of attention makes again: scores, their
            dropout masks and results; with FlashAttention the sums of each row.
        products_whole, products_divided: what is kept where every other product is computed again
            (torchtitan's selective activation checkpointing by operator).
        gradients: gradients of the widest part's activations, which tensor parallelism divides.
        keys: keys and values.
    """

    whole: float = 0.0
    inputs: float = 0.0
    divided: float = 0.0
    scores: float = 0.0
    products_whole: float = 0.0
    products_divided: float = 0.0
    gradients: float = 0.0
    keys: float = 0.0


def saved_layer(run: LlmTraining, layer: Layer) -> SavedLayer:
    """What one layer of a run keeps."""
    hidden = run.model.hidden_size
    mixers = [one for one in (layer.mixer, layer.cross) if one is not None]
    found = [_mixer(run, one) for one in mixers]
    for part in layer.feed_forward:
        inputs = product_input_bytes(run)
        whole = _entry(run) * hidden
        if isinstance(part, Dense):
            inner = _inner(run, part.gated, part.width)
            results = part.width * (2.0 if part.gated else 1.0)
            gradients = 2.0 * results
        else:
            each = part.latent_size or hidden
            inner = part.per_token * (inputs * each + _inner(run, part.gated, part.width))
            inner += _inner(run, part.gated, part.shared_width)
            whole += 8.0 * part.experts
            wide = part.per_token * part.width + part.shared_width
            results = wide * (2.0 if part.gated else 1.0) + part.per_token * each
            gradients = 2.0 * results
        entry = inputs * hidden
        found.append(SavedLayer(whole, entry, inner, 0.0, float(hidden), results, gradients))
    return SavedLayer(
        whole=sum(one.whole for one in found),
        inputs=sum(one.inputs for one in found),
        divided=sum(one.divided for one in found),
        scores=sum(one.scores for one in found),
        products_whole=sum(one.products_whole for one in found),
        products_divided=sum(one.products_divided for one in found),
        gradients=max((one.gradients for one in found), default=0.0),
        keys=max((one.keys for one in found), default=0.0),
    )


def product_input_bytes(run: LlmTraining) -> float:
    """Bytes of an input of a product as it is kept for the gradient of the weights.

    Transformer Engine, which Megatron-LM uses, keeps it quantised; torchao's float8 layers keep
    it in 16 bits and quantise again (`torchao.float8.float8_linear`).
    """
    low = run.framework == "megatron" and run.precision in ("fp8", "mxfp8", "nvfp4")
    return FORMATS[run.precision].bytes if low else 2.0


def _entry(run: LlmTraining) -> float:
    """Bytes of a value at the entry of a part: the input of its norm, and a mask of dropout."""
    return 3.0 if run.attention == "eager" else 2.0


def _inner(run: LlmTraining, gated: bool, width: float) -> float:
    """Bytes of a token's inner values of a feed-forward network: before and after the function.

    The function is fused or compiled: between, it keeps nothing.
    """
    return width * ((4.0 if gated else 2.0) + product_input_bytes(run))


def _mixer(run: LlmTraining, mixer: Mixer) -> SavedLayer:
    hidden = run.model.hidden_size
    inputs = product_input_bytes(run)
    whole = _entry(run) * hidden
    heads = 0
    match mixer:
        case Attention():
            heads = mixer.query_heads
            queries = heads * mixer.head_dim * (2 if mixer.gated else 1)
            keys = mixer.key_value_heads * (mixer.head_dim + mixer.value_head_dim)
            out, latent = heads * mixer.value_head_dim, 0
        case LatentAttention():
            heads = mixer.query_heads
            queries = heads * (mixer.plain_dim + mixer.rotary_dim)
            keys = heads * (mixer.plain_dim + mixer.rotary_dim + mixer.value_head_dim)
            out = heads * mixer.value_head_dim * (2 if mixer.gated else 1)
            latent = 2 * (mixer.query_rank or 0) + 2 * mixer.key_value_rank + mixer.rotary_dim
        case CompressedAttention():
            heads = mixer.query_heads
            queries, keys = heads * mixer.head_dim, mixer.head_dim
            out = heads * mixer.head_dim + mixer.output_groups * mixer.output_rank
            latent = 2 * mixer.query_rank + mixer.head_dim
        case Recurrent():
            made = mixer.parameters(hidden) / hidden
            states = 4.0 * mixer.cached(1) / STATE_CHUNK_TOKENS
            kept = 4.0 * made + states
            entry = inputs * hidden
            return SavedLayer(whole, entry, kept, 0.0, float(hidden), made, 2.0 * made)
    # Attention keeps its result in 16 bits, and the product after it a quantised copy.
    results = out * (2.0 + (inputs if inputs < 2.0 else 0.0))
    eager = run.attention == "eager"
    scores = heads * (5.0 * run.sequence_tokens if eager else 4.0)
    divided = 2.0 * (queries + keys) + results
    kept = 2.0 * out + queries + keys
    return SavedLayer(
        whole + 2.0 * latent,
        inputs * hidden,
        divided,
        scores,
        float(hidden + latent),
        kept,
        2.0 * (queries + keys + out),
        2.0 * keys,
    )
