"""The encoder of an encoder-decoder, whose output the decoder's layers attend to."""

from dataclasses import dataclass

from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense


@dataclass(frozen=True, slots=True)
class Encoder:
    """Layers that every token of the input passes once a request, all attending to all.

    Attributes:
        layers: number of layers, all alike.
        hidden_size: width of a token between layers.
        attention: attention of a layer.
        feed_forward: what each token passes alone.
        tokens: length that every input is brought to, as with sound of 30 s; None where it is that
            of the prompt.
        most_tokens: longest input, tokens; None where positions have no bound, or `tokens` says it.
        input_parameters: number of weights of the convolutions in front of the layers; 0 where
            the decoder's table of embeddings serves the encoder too.
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
