"""Summarises a language model by the sizes that predictors of served models take."""

from dataclasses import dataclass
from typing import Final, Self

from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.recurrent import Recurrent
from forerun.data.number_formats import GGUF
from forerun.data.workload import LlmArchitecture, WeightFormat

EIGHT_BITS: Final = 6.5
"""Bits per weight from which a GGUF format counts as eight bits, not four."""
CONTEXT_TOKENS: Final = 4096
"""Sequence length at which cache bytes per token are computed."""
FORMATS: dict[str, WeightFormat] = {
    **{"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8"},
    **{"int8": "int8", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "int4": "int4"},
    **{name: "int4" if bits < EIGHT_BITS else "int8" for name, bits in GGUF.items()},
}
"""Format of the weights -> nearest format that predictors of served models distinguish."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Parameters, experts and cache of a model.

    Attributes:
        total_parameters: number of parameters, without image encoders.
        active_parameters: number of parameters used per token.
        architecture: kind of layers.
        experts: routed experts per layer; 0 for none.
        experts_per_token: routed experts per token.
        cache_bytes_per_token: bytes of keys, values and states per token of a sequence of
            `CONTEXT_TOKENS`.
        weights: number format of most weights.
    """

    total_parameters: float
    active_parameters: float
    architecture: LlmArchitecture
    experts: int
    experts_per_token: int
    cache_bytes_per_token: float
    weights: str

    @classmethod
    def of(cls, model: LanguageModel) -> Self:
        """The sizes of a model."""
        mixtures = [
            p for layer in model.layers for p in layer.feed_forward if isinstance(p, Experts)
        ]
        first = mixtures[0] if mixtures else None
        return cls(
            total_parameters=model.parameters(),
            active_parameters=_active(model),
            architecture=_architecture(model),
            experts=0 if first is None else first.experts,
            experts_per_token=0 if first is None else first.per_token,
            cache_bytes_per_token=model.cache_bytes(CONTEXT_TOKENS) / CONTEXT_TOKENS,
            weights=_format(model),
        )


def _active(model: LanguageModel) -> int:
    """Parameters that a token uses: all but those of experts it is not routed to."""
    parts = [part for layer in model.layers for part in layer.feed_forward]
    unused = sum(
        part.parameters(model.hidden_size) - part.active(model.hidden_size) for part in parts
    )
    return model.parameters() - unused


def _architecture(model: LanguageModel) -> LlmArchitecture:
    if any(isinstance(layer.mixer, Recurrent) for layer in model.layers):
        return "hybrid"
    parts = (part for layer in model.layers for part in layer.feed_forward)
    return "experts" if any(isinstance(part, Experts) for part in parts) else "dense"


def _format(model: LanguageModel) -> str:
    """The format of the last layer with a feed-forward network: of its experts if it has any."""
    for number, layer in reversed(list(enumerate(model.layers))):
        formats = model.formats.of_layer(number)
        for part in layer.feed_forward:
            return formats.experts if isinstance(part, Experts) else formats.dense
    return model.formats.unquantized
