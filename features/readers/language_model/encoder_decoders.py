"""Families with an encoder, and a decoder that attends to its output."""

from collections.abc import Callable, Mapping
from typing import Final

from forerun.data.language_models.attention import Attention
from forerun.data.language_models.encoder import Encoder
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import Layer
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
    encoder = Encoder(layers, hidden, attention, dense)
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
    fields.raw("num_hidden_layers")  # the same as encoder_layers, whatever the decoder has
    layers = fields.integer(f"{name}_layers", most=MOST_LAYERS)
    return Attention(heads, heads, width, width), dense, layers


ENCODER_DECODERS: Final[Mapping[str, Callable[[Fields], Parts]]] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    **dict.fromkeys(("bart", "mbart", "m2m_100", "marian", "pegasus", "blenderbot"), _bart),
    "whisper": _whisper,
}
"""`model_type` -> how its encoder and its decoder's layers are read."""
