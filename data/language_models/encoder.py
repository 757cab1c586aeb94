"""The encoder of an encoder-decoder, to whose output the decoder's layers attend."""

from dataclasses import dataclass

from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense


@dataclass(frozen=True, slots=True)
class Encoder:
    """Layers that process the input once per request; every token attends to all others.

    Attributes:
        layers: number of layers, all identical.
        hidden_size: width of a token between layers.
        attention: attention of a layer.
        feed_forward: feed-forward network of a layer.
        tokens: length to which every input is padded, as with 30 s of sound; None for the length of
            the prompt.
        most_tokens: longest input, tokens; None if unbounded, or if `tokens` fixes the length.
        input_parameters: number of weights of the convolutions before the layers; 0 if the encoder
            shares the decoder's embedding table.
    """

    layers: int
    hidden_size: int
    attention: Attention
    feed_forward: Dense
    tokens: int | None = None
    most_tokens: int | None = None
    input_parameters: int = 0

    def parameters(self) -> int:
        """Number of weights."""
        size = self.hidden_size
        layer = self.attention.parameters(size) + self.feed_forward.parameters(size)
        return self.layers * layer + self.input_parameters
