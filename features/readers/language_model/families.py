"""The families of language models that are read, by `model_type`.

Some have an encoder, and a decoder that attends to its output.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from forerun.data.facts import facts_of
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.encoder import Encoder
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import Layer
from forerun.features.readers.language_model import feed_forwards, mixers
from forerun.features.readers.language_model.fields import Fields, short

MOST_LAYERS: Final = 4096
Parts = tuple[Encoder, tuple[Layer, ...]]


def _t5(fields: Fields) -> Parts:
    """T5 and its kin: one width and one number of heads for both halves."""
    hidden, heads = fields.integer("d_model", "hidden_size"), fields.integer("num_heads")
    width = fields.integer("d_kv", default=64)
    attention = Attention(heads, heads, width, width)
    dense = Dense(fields.integer("d_ff"), gated=_is_gated(fields))
    layers = fields.integer("num_layers", most=MOST_LAYERS)
    count = fields.integer("num_decoder_layers", default=layers, most=MOST_LAYERS)
    encoder = Encoder(layers, hidden, attention, dense)
    return encoder, (Layer(attention, (dense,), cross=attention),) * count


def _is_gated(fields: Fields) -> bool:
    """Whether a third matrix gates the inner values: two fields may say so."""
    named = fields.text("feed_forward_proj") or "relu"
    gated = named.startswith("gated-")
    if fields.flag("is_gated_act", default=gated) != gated:
        raise fields.bad("is_gated_act", f"contradicts feed_forward_proj, which is {short(named)}")
    return gated


def _bart(fields: Fields) -> Parts:
    """BART and its kin: each half has sizes of its own but for the width of a token."""
    hidden = fields.integer("d_model", "hidden_size")
    attention, dense, layers = _half(fields, "encoder", hidden)
    own, network, count = _half(fields, "decoder", hidden)
    most = fields.maybe_integer("max_position_embeddings")
    encoder = Encoder(layers, hidden, attention, dense, most_tokens=most)
    return encoder, (Layer(own, (network,), cross=own),) * count


def _whisper(fields: Fields) -> Parts:
    """Whisper: two convolutions of three steps bring sound of 30 s to one length."""
    encoder, layers = _bart(fields)
    hidden = encoder.hidden_size
    bands = fields.integer("num_mel_bins", default=80)
    sound = Encoder(
        layers=encoder.layers,
        hidden_size=hidden,
        attention=encoder.attention,
        feed_forward=encoder.feed_forward,
        tokens=fields.integer("max_source_positions", default=1500),
        input_parameters=3 * hidden * (bands + hidden),
    )
    return sound, layers


def _half(fields: Fields, name: str, hidden: int) -> tuple[Attention, Dense, int]:
    """Attention, feed-forward network and number of layers of the encoder or the decoder."""
    heads = fields.integer(f"{name}_attention_heads")
    if hidden % heads:
        raise fields.bad("d_model", f"is {hidden}, which {heads} heads do not divide")
    width = hidden // heads
    dense = Dense(fields.integer(f"{name}_ffn_dim"), gated=False)
    fields.skip("num_hidden_layers")  # the same as encoder_layers, whatever the decoder has
    layers = fields.integer(f"{name}_layers", most=MOST_LAYERS)
    return Attention(heads, heads, width, width), dense, layers


ENCODER_DECODERS: Final[Mapping[str, Callable[[Fields], Parts]]] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    **dict.fromkeys(("bart", "mbart", "m2m_100", "marian", "pegasus", "blenderbot"), _bart),
    "whisper": _whisper,
}
"""`model_type` -> how its encoder and its decoder's layers are read."""


Layers = Callable[[Fields, int], tuple[Layer, ...]]
"""Fields of the decoder and its number of layers -> the layers."""


def _of(mixer: mixers.Mixers, feed_forward: feed_forwards.FeedForwards) -> Layers:
    """Layers of a mixer and a feed-forward network each."""

    def layers(fields: Fields, count: int) -> tuple[Layer, ...]:
        pairs = zip(mixer(fields, count), feed_forward(fields, count), strict=True)
        return tuple(Layer(one, tuple(parts)) for one, parts in pairs)

    return layers


_DENSE = _of(mixers.grouped, feed_forwards.gated)
_EXPERTS = _of(mixers.grouped, feed_forwards.experts)
_LATENT = _of(mixers.latent, feed_forwards.experts)
_PLAIN = _of(mixers.merged, feed_forwards.plain)
_UNGATED = _of(mixers.grouped, feed_forwards.plain)


def _nemotron_h(fields: Fields, count: int) -> tuple[Layer, ...]:
    """Layers of one kind each, as a pattern or a list says."""
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    pattern = fields.text("hybrid_override_pattern")
    listed = fields.words("layers_block_type", count, tuple(letters.values()))
    if pattern is None and listed is None:
        raise fields.bad("hybrid_override_pattern", "is missing")
    if pattern is not None:
        if len(pattern) != count or set(pattern) - set(letters):
            raise fields.bad(
                "hybrid_override_pattern", f"is not {count} letters of {', '.join(letters)}"
            )
        kinds = tuple(letters[letter] for letter in pattern)
        if listed is not None and listed != kinds:
            raise fields.bad("layers_block_type", "contradicts hybrid_override_pattern")
    else:
        kinds = listed or ()
    fields.skip("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    pairs = zip(
        mixers.state_spaces(fields, kinds), feed_forwards.in_own_layers(fields, kinds), strict=True
    )
    return tuple(Layer(mixer, parts) for mixer, parts in pairs)


def _deci(fields: Fields, count: int) -> tuple[Layer, ...]:
    """Nemotron of the Puzzle family: each layer's block says what is left of it."""
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    if hidden % heads:
        raise fields.bad("hidden_size", f"is {hidden}, which {heads} heads do not divide")
    fields.skip("num_key_value_heads")
    blocks = fields.listed("block_configs", count)
    if blocks is None:
        raise fields.bad("block_configs", "is missing")
    return tuple(
        _deci_layer(fields, (number, block), hidden, heads) for number, block in enumerate(blocks)
    )


def _deci_layer(fields: Fields, numbered: tuple[int, Any], hidden: int, heads: int) -> Layer:
    """The layer of a block, which comes with its position in the list of blocks."""
    number, block = numbered
    inner = fields.entry("block_configs", number, block if isinstance(block, Mapping) else {})
    attention, network = inner.part("attention"), inner.part("ffn")
    if attention is None or network is None:
        raise fields.bad("block_configs", "holds a block without attention and ffn", (number,))
    for part in (attention, network):
        if part.flag("replace_with_linear"):
            raise part.bad("replace_with_linear", "is set, and such layers are not supported yet")
    mixer = None
    if not attention.flag("no_op"):
        per_head = attention.integer("n_heads_in_group")
        width = hidden // heads
        window = attention.maybe_integer("window_length")
        mixer = Attention(heads, max(heads // per_head, 1), width, width, window)
    if network.flag("no_op"):
        return Layer(mixer, ())
    multiple = network.number("ffn_mult", least=0.0, most=64.0)
    if multiple is None:
        raise network.bad("ffn_mult", "is missing")
    return Layer(mixer, (Dense(_deci_width(multiple, hidden)),))


_DECI_STEP: Final = 256


def _deci_width(multiple: float, hidden: int) -> int:
    """Two thirds of that multiple, rounded up to a multiple of 256, as these models count it."""
    width = int(2 * multiple * hidden / 3)
    return -(-width // _DECI_STEP) * _DECI_STEP


FAMILIES: Final[Mapping[str, Layers]] = {
    **dict.fromkeys(("llama", "mistral", "ministral3", "qwen2", "qwen3", "mimo"), _DENSE),
    **dict.fromkeys(("phi3", "granite", "olmo", "olmo2", "olmo3", "smollm3"), _DENSE),
    **dict.fromkeys(("seed_oss", "stablelm", "cohere", "ernie4_5", "Yi"), _DENSE),
    **dict.fromkeys(("internlm", "internlm3", "aquila", "baichuan", "hunyuan_v1_dense"), _DENSE),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "glm4", "cohere2", "internlm2"), _DENSE),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_text", "qwen2_vl", "qwen2_5_vl"), _DENSE),
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text"), _EXPERTS),
    **dict.fromkeys(("gpt_oss", "minimax_m2", "glm4_moe", "step3p7", "phimoe"), _EXPERTS),
    **dict.fromkeys(("olmoe", "granitemoe"), _EXPERTS),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"), _LATENT),
    "glm_moe_dsa": _LATENT,
    **dict.fromkeys(("gpt2", "gpt_neox", "opt", "bloom", "falcon", "gpt_bigcode"), _PLAIN),
    **dict.fromkeys(("gptj", "codegen", "mpt", "phi"), _PLAIN),
    **dict.fromkeys(("starcoder2", "nemotron", "persimmon"), _UNGATED),
    "ernie4_5_moe": _of(mixers.grouped, feed_forwards.between),
    "hunyuan_v1_moe": _of(mixers.grouped, feed_forwards.numbered),
    "lfm2": _of(mixers.convolutions_and_attention, feed_forwards.adjusted),
    "granitemoehybrid": _of(mixers.spaces_and_attention, feed_forwards.hybrid),
    "qwen": _of(mixers.grouped, feed_forwards.halved),
    "dbrx": _of(mixers.nested, feed_forwards.nested),
    **dict.fromkeys(("deepseek_v4", "deepseek_ref"), _of(mixers.compressed, feed_forwards.experts)),
    **dict.fromkeys(("minimax_m3", "minimax_m3_text"), _of(mixers.selected, feed_forwards.experts)),
    "llama4_text": _of(mixers.chunked, feed_forwards.interleaved),
    "gemma4_text": _of(mixers.sized_by_kind, feed_forwards.both),
    "mimo_v2_flash": _of(mixers.sized_by_pattern, feed_forwards.experts),
    "qwen3_next": _of(mixers.delta, feed_forwards.experts),
    "qwen3_5_text": _of(mixers.delta, feed_forwards.gated),
    "qwen3_5_moe_text": _of(mixers.delta, feed_forwards.experts),
    "kimi_linear": _of(mixers.kimi, feed_forwards.experts),
    "nemotron_h": _nemotron_h,
    "nemotron-nas": _deci,
}
"""`model_type` -> how its layers are read."""

RELATIVE: Final = frozenset(("t5", "mt5", "umt5"))
"""Families whose positions are relative to one another, so that no length is too long."""
_FACTS: Final = facts_of(__file__)
TIED: Final = frozenset({*_FACTS["tied"]["families"], *ENCODER_DECODERS})
"""Families whose output matrix is the table of embeddings unless the file says otherwise."""
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = _FACTS["defaults"]
"""What the files of a family leave out where they mean the defaults of its published class."""
REFUSED: Final[Mapping[str, str]] = {
    name: why for why, names in _FACTS["refused"].items() for name in names
}
"""`model_type` of families that are known and not read -> why."""


def known() -> Sequence[str]:
    """The families, in alphabetical order."""
    return sorted({*FAMILIES, *ENCODER_DECODERS}, key=str.lower)
