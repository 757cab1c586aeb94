"""Sizes of a language model that a configuration gives, for requests and answers."""

from typing import Any, Self

from pydantic import BaseModel, Field

from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.recurrent import GatedDeltaNet, KimiDeltaAttention, StateSpace
from forerun.data.workload import LlmArchitecture, WeightFormat

CONTEXT_TOKENS = 4096
"""Length of the sequence whose keys, values and states are divided by its tokens."""
FORMATS: dict[str, WeightFormat] = {
    **{"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8"},
    **{"int8": "int8", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "int4": "int4"},
}
"""Format of the weights -> the format that predictors of served models know."""


class ModelSizesOut(BaseModel):
    """What was read from a model's config.json."""

    family: str = Field(description="model_type of the configuration")
    total_parameters: float = Field(description="number of parameters, without images' encoders")
    active_parameters: float = Field(description="number of parameters used per token")
    architecture: LlmArchitecture = Field(description="kind of layers")
    experts: int = Field(description="routed experts per layer; 0 for none")
    experts_per_token: int = Field(description="routed experts per token")
    cache_bytes_per_token: float = Field(
        description=f"keys, values and states of a sequence of {CONTEXT_TOKENS:,} tokens, divided "
        "by its tokens, bytes"
    )
    weight_bytes: float = Field(description="size of the weights in their formats, bytes")
    weights: str = Field(description="number format of most weights")
    most_tokens: int | None = Field(
        description="longest context, tokens; null where it is not said"
    )
    draft_layers: int = Field(
        description="layers that draft further tokens; not among the parameters"
    )
    image_parameters: float = Field(
        description="number of parameters of the encoder of images, not among the others"
    )
    image_pixels_per_token: int | None = Field(
        description="pixels of an image along each side for one token; null without an encoder"
    )
    unread_fields: list[str] = Field(
        description="fields of the configuration whose meaning is not known"
    )
    misspelt_fields: list[str] = Field(
        description="those of them that look like a field that is not there, with its name, and "
        "fields that name an activation that is not known"
    )

    @classmethod
    def of(cls, model: LanguageModel) -> Self:
        """The sizes of a model."""
        mixtures = [
            p for layer in model.layers for p in layer.feed_forward if isinstance(p, Experts)
        ]
        first = mixtures[0] if mixtures else None
        return cls(
            family=model.family,
            total_parameters=model.parameters(),
            active_parameters=_active(model),
            architecture=_architecture(model),
            experts=0 if first is None else first.experts,
            experts_per_token=0 if first is None else first.per_token,
            cache_bytes_per_token=model.cache_bytes(CONTEXT_TOKENS) / CONTEXT_TOKENS,
            weight_bytes=model.weight_bytes(),
            weights=_format(model),
            most_tokens=model.most_tokens,
            draft_layers=model.draft_layers,
            image_parameters=0 if model.vision is None else model.vision.parameters(),
            image_pixels_per_token=None
            if model.vision is None
            else model.vision.pixels_per_token(),
            unread_fields=list(model.unread_fields),
            misspelt_fields=list(model.misspelt_fields),
        )

    def request(self, *, weights: WeightFormat | None) -> dict[str, Any]:
        """The same as fields of a request.

        Args:
            weights: format that the request names; None for that of the configuration.
        """
        fields = {"total_parameters", "active_parameters", "architecture", "experts"}
        fields |= {"experts_per_token", "cache_bytes_per_token"}
        return self.model_dump(include=fields) | {"weights": weights or FORMATS[self.weights]}


def _active(model: LanguageModel) -> int:
    """Parameters without those of experts that a token does not pass; embeddings count."""
    parts = [part for layer in model.layers for part in layer.feed_forward]
    unused = sum(
        part.parameters(model.hidden_size) - part.active(model.hidden_size) for part in parts
    )
    return model.parameters() - unused


def _architecture(model: LanguageModel) -> LlmArchitecture:
    recurrent = (GatedDeltaNet, KimiDeltaAttention, StateSpace)
    if any(isinstance(layer.mixer, recurrent) for layer in model.layers):
        return "hybrid"
    parts = (part for layer in model.layers for part in layer.feed_forward)
    return "experts" if any(isinstance(part, Experts) for part in parts) else "dense"


def _format(model: LanguageModel) -> str:
    """The format of routed experts where there are any, of dense networks elsewhere."""
    for number, layer in reversed(list(enumerate(model.layers))):
        formats = model.formats.of_layer(number)
        for part in layer.feed_forward:
            return formats.experts if isinstance(part, Experts) else formats.dense
    return model.formats.unquantized
