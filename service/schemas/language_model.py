"""Sizes of a language model that a configuration gives, for requests and answers."""

from dataclasses import asdict
from typing import Any, Self

from pydantic import Field

from forerun.data.described import Described
from forerun.data.language_models.model import LanguageModel
from forerun.data.workload import LlmArchitecture, WeightFormat
from forerun.features.llm_serving.model_sizes import CONTEXT_TOKENS, FORMATS, ModelSizes


class ModelSizesOut(Described):
    """The model as read from its config.json."""

    family: str
    """model_type of the configuration"""
    total_parameters: float
    """number of parameters, without image encoders"""
    active_parameters: float
    """number of parameters used per token"""
    architecture: LlmArchitecture
    """kind of layers"""
    experts: int
    """routed experts per layer; 0 for none"""
    experts_per_token: int
    """routed experts per token"""
    cache_bytes_per_token: float = Field(
        description=f"keys, values and states of a sequence of {CONTEXT_TOKENS:,} tokens, divided "
        "by its tokens, bytes"
    )
    weight_bytes: float
    """size of the weights in their formats, bytes"""
    weights: str
    """number format of most weights"""
    most_tokens: int | None
    """longest context, tokens; null where it is not given, or differs between encoder and
    decoder"""
    draft_layers: int
    """layers that draft further tokens; not included in the parameters"""
    image_parameters: float
    """number of parameters of the image encoder, not included in the others"""
    image_pixels_per_token: int | None
    """pixels of an image along each side for one token; null without an encoder"""
    unread_fields: list[str]
    """fields of the configuration whose meaning is not known"""
    misspelt_fields: list[str]
    """unread fields that look like a misspelt known field, with its name, and fields with an
    unknown activation"""

    @classmethod
    def of(cls, model: LanguageModel) -> Self:
        """The sizes of a model."""
        return cls(
            **asdict(ModelSizes.of(model)),
            family=model.family,
            weight_bytes=model.weight_bytes(),
            most_tokens=model.most_tokens if model.encoder is None else None,
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
