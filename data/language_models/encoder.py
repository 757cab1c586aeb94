"""The encoder of an encoder-decoder model, to whose output the decoder's layers attend."""

from dataclasses import dataclass

from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense


@dataclass(frozen=True, slots=True)
class Encoder:
    """Identical layers that process the input once per request, with bidirectional attention.

    Attributes:
        layers: number of layers.
        hidden_size: width of a token between layers.
        attention: attention of a layer.
        feed_forward: feed-forward network of a layer.
        tokens: length that every input is padded or cut to, as with 30 s of audio; None if it is
            that of the prompt.
        most_tokens: longest input, tokens; None if positions are unbounded or `tokens` fixes it.
        input_parameters: number of weights of the convolutions before the layers; 0 if the encoder
            shares the decoder's embeddings.
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
