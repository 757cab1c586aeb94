"""Whether a language model can be divided over devices as a request or a measured run says."""

from typing import Final

from forerun.data.errors import BadRequest, in_field
from forerun.data.language_models.deployment import Parallelism
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.features.llm_serving.memory import divides_heads

MOST_DEGREE: Final = 64
"""Degrees that a message names."""


def check_degrees(model: LanguageModel, own: Parallelism) -> None:
    """Refuse degrees that no engine runs the model with.

    Raises:
        BadRequest: heads, layers or experts cannot be divided so; its field is the degree.
    """
    with in_field("tensor"):
        _check_heads(model, own.tensor)
    with in_field("pipeline"):
        _check_layers(model, own.pipeline)
    with in_field("expert"):
        _check_experts(model, own)


def _check_heads(model: LanguageModel, tensor: int) -> None:
    if not divides_heads(model, tensor):
        able = [each for each in range(1, MOST_DEGREE + 1) if divides_heads(model, each)]
        raise BadRequest(
            f"Tensor parallel {tensor} does not divide the attention heads of the model evenly; "
            f"{', '.join(map(str, able))} do."
        )


def _check_layers(model: LanguageModel, pipeline: int) -> None:
    layers = len(model.layers)
    if pipeline > layers:
        raise BadRequest(
            f"Pipeline parallel {pipeline} is more than the model has layers, {layers}."
        )


def _check_experts(model: LanguageModel, own: Parallelism) -> None:
    if own.expert == 1:
        return
    experts, sharing = _most_experts(model), own.tensor * own.attention_data
    if not experts:
        raise BadRequest(
            f"Expert parallel {own.expert} is of models with experts, and this one has none: "
            "leave it out."
        )
    if own.expert > experts or sharing % own.expert:
        raise BadRequest(
            f"Expert parallel {own.expert} must divide the devices of a layer, {sharing} "
            f"(tensor times attention data), and be at most its experts, {experts}."
        )


def _most_experts(model: LanguageModel) -> int:
    """Routed experts of the layer that has most; 0 in a model without experts."""
    parts = (part for layer in model.layers for part in layer.feed_forward)
    return max((part.experts for part in parts if isinstance(part, Experts)), default=0)
