"""A language model as a list of layers."""

from dataclasses import dataclass, field, replace
from typing import Final

from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.encoder import Encoder
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.recurrent import (
    GatedDeltaNet,
    KimiDeltaAttention,
    Recurrent,
    ShortConvolution,
    StateSpace,
)
from forerun.data.language_models.weights import BYTES, WeightFormats

ANSWER_TOKENS: Final = 448
"""Longest answer of an encoder-decoder, tokens, as in Whisper."""

Mixer = (
    Attention
    | LatentAttention
    | CompressedAttention
    | GatedDeltaNet
    | KimiDeltaAttention
    | StateSpace
    | ShortConvolution
)
FeedForward = Dense | Experts


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        mixer: attention or recurrent layer, which mixes tokens; None for none.
        feed_forward: feed-forward networks, one after the other; some layers have none.
        cross: cross-attention to the encoder's output; None for none.
    """

    mixer: Mixer | None
    feed_forward: tuple[FeedForward, ...]
    cross: Attention | None = None


@dataclass(frozen=True, slots=True)
class VisionTower:
    """The image encoder of a language model.

    Attributes:
        layers: number of layers.
        hidden_size: width of a patch.
        attention_width: width of all heads together.
        width: intermediate width of the feed-forward networks.
        patch_pixels: side of a patch, pixels.
        merged: patches along each side that are merged into one token.
        output_size: hidden size of the language model.
        merges: networks that merge patches: one at the end, and one for each inner layer whose
            output the language model also uses.
    """

    layers: int
    hidden_size: int
    attention_width: int
    width: int
    patch_pixels: int
    merged: int
    output_size: int
    merges: int = 1

    def pixels_per_token(self) -> int:
        """Side of the image region that becomes one token of the language model, pixels."""
        return self.patch_pixels * self.merged

    def parameters(self) -> int:
        """Number of weights."""
        layer = 4 * self.hidden_size * self.attention_width + 2 * self.hidden_size * self.width
        joined = self.hidden_size * self.merged**2
        return self.layers * layer + self.merges * joined * (joined + self.output_size)


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A decoder, optionally with an encoder of its input or of images.

    Attributes:
        family: `model_type` of its configuration.
        hidden_size: width of a token between layers.
        vocabulary: size of the vocabulary.
        layers: the layers, first to last, without those that only draft tokens.
        tied_embeddings: whether the output matrix is the embedding matrix.
        most_tokens: longest context, tokens; for an encoder-decoder, the longest answer. None if
            the configuration does not say or there is no bound.
        vision: the image encoder; None for none.
        formats: number formats of weights, keys and values.
        draft_layers: layers that predict further tokens, for speculative decoding.
        unread_fields: fields of the configuration that the reader does not know.
        misspelt_fields: those of them that resemble a missing field, with its name, and fields that
            name an unknown activation.
        encoder: the encoder of an encoder-decoder; None for decoder-only models.
    """

    family: str
    hidden_size: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied_embeddings: bool
    most_tokens: int | None = None
    vision: VisionTower | None = None
    formats: WeightFormats = field(default_factory=WeightFormats)
    draft_layers: int = 0
    unread_fields: tuple[str, ...] = ()
    misspelt_fields: tuple[str, ...] = ()
    encoder: Encoder | None = None

    def __hash__(self) -> int:
        """Hash a few sizes and formats only, which is fast for models with many layers."""
        sizes = (self.hidden_size, self.vocabulary, len(self.layers), self.draft_layers)
        return hash((*sizes, self.formats.cache, self.formats.layers[-1:]))

    def table_parameters(self) -> int:
        """Number of weights of the embedding matrix, and also of the output matrix."""
        return self.vocabulary * self.hidden_size

    def parameters(self) -> int:
        """Number of weights of the decoder, its embeddings, its output matrix and its encoder."""
        tables = self.table_parameters() * (1 if self.tied_embeddings else 2)
        encoder = 0 if self.encoder is None else self.encoder.parameters()
        return encoder + tables + sum(self._layer(layer, active=False) for layer in self.layers)

    def active_parameters(self) -> int:
        """Number of weights that the decoder multiplies with each token.

        Excluded are input embeddings, experts that the token is not routed to, and what an
        encoder-decoder runs once per request: the encoder, and the key and value projections of its
        output.
        """
        layers = sum(self._layer(layer, active=True) for layer in self.layers)
        return self.table_parameters() + layers

    def as_served(self) -> "LanguageModel":
        """The model in the form that deployments use, with cross-attention as separate layers.

        A request's tokens are those of the encoder followed by those of the answer. The decoder's
        own layers attend to the latter alone. Answer tokens read the cached keys and values of the
        encoder's output.
        """
        if self.encoder is None:
            return self
        layers = []
        for layer in self.layers:
            mixer = layer.mixer
            if isinstance(mixer, Attention):
                mixer = replace(mixer, window=ANSWER_TOKENS)
            layers.append(Layer(mixer, layer.feed_forward))
            if layer.cross is not None:
                layers.append(Layer(replace(layer.cross, values_are_keys=True), ()))
        return replace(self, layers=tuple(layers))

    def encoding(self) -> "LanguageModel":
        """The part of a model `as_served` that processes prompts.

        It consists of the encoder and of the key and value projections of its output.
        """
        assert self.encoder is not None
        encoder = self.encoder
        projections = [
            Layer(None, (Dense(mixer.key_value_heads * mixer.head_dim, gated=False),))
            for layer in self.layers
            if isinstance(mixer := layer.mixer, Attention) and mixer.values_are_keys
        ]
        layers = (Layer(encoder.attention, (encoder.feed_forward,)),) * encoder.layers
        return replace(self, layers=(*layers, *projections), vocabulary=0, encoder=None)

    def cache_bytes(self, context_tokens: int, encoder_tokens: int | None = None) -> float:
        """Bytes of keys, values and states of one sequence.

        Args:
            context_tokens: tokens of the sequence in the decoder.
            encoder_tokens: input tokens of an encoder-decoder; None for the encoder's fixed length
                or, if it has none, for as many as in the decoder.
        """
        attended, states = 0, 0
        fixed = None if self.encoder is None else self.encoder.tokens
        source = context_tokens if fixed is None else fixed
        for layer in self.layers:
            if layer.cross is not None:
                attended += layer.cross.cached(source if encoder_tokens is None else encoder_tokens)
            match layer.mixer:
                case None:
                    continue
                case Attention() | LatentAttention() | CompressedAttention() as mixer:
                    attended += mixer.cached(context_tokens)
                case Recurrent() as mixer:
                    states += mixer.cached(context_tokens)
        return attended * BYTES[self.formats.cache] + states * BYTES[self.formats.state]

    def weight_bytes(self) -> float:
        """Bytes of all weights that `parameters` counts."""
        encoder = 0 if self.encoder is None else self.encoder.parameters()
        whole = (encoder + self.table_parameters()) * BYTES[self.formats.unquantized]
        if not self.tied_embeddings:
            whole += self.table_parameters() * BYTES[self.formats.head]
        for number, layer in enumerate(self.layers):
            form = self.formats.of_layer(number)
            if layer.mixer is not None:
                whole += layer.mixer.parameters(self.hidden_size) * BYTES[form.mixer]
            if layer.cross is not None:
                whole += layer.cross.parameters(self.hidden_size) * BYTES[form.mixer]
            for part in layer.feed_forward:
                match part:
                    case Dense():
                        whole += part.parameters(self.hidden_size) * BYTES[form.dense]
                    case Experts():
                        routed = part.experts * part.expert(self.hidden_size)
                        whole += routed * BYTES[form.experts]
                        whole += part.shared(self.hidden_size) * BYTES[form.shared]
                        whole += part.router(self.hidden_size) * BYTES[self.formats.unquantized]
        return whole

    def _layer(self, layer: Layer, *, active: bool) -> int:
        mixer = 0 if layer.mixer is None else layer.mixer.parameters(self.hidden_size)
        parts, cross = layer.feed_forward, layer.cross
        if cross is not None:
            outward = cross.query_heads * (cross.head_dim + cross.value_head_dim) * self.hidden_size
            mixer += outward if active else cross.parameters(self.hidden_size)
        if active:
            return mixer + sum(part.active(self.hidden_size) for part in parts)
        return mixer + sum(part.parameters(self.hidden_size) for part in parts)
