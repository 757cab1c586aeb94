"""Whether a model can be divided over devices as a request or a measured run says."""

from collections.abc import Callable
from typing import Final

from forerun.data.errors import BadRequest, in_field
from forerun.data.graph import Operator, OperatorGraph, Shape
from forerun.data.language_models.deployment import Parallelism
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.data.workload import TrainingSetup
from forerun.features.graphs.blocks import parts
from forerun.features.llm_serving.memory import divides_heads
from forerun.features.memory.attention import attention_heads
from forerun.features.memory.weights import divided_weights

MOST_DEGREE: Final = 64
"""Degrees that a message names."""


def check_degrees(model: LanguageModel, own: Parallelism) -> None:
    """Refuse degrees that no engine runs the model with.

    Raises:
        BadRequest: heads, layers or experts cannot be divided so; its field is the degree.
    """
    with in_field("tensor"):
        _check_heads(own.tensor, lambda tensor: divides_heads(model, tensor))
    with in_field("pipeline"):
        _check_layers(own.pipeline, len(model.layers))
    with in_field("expert"):
        _check_experts(model, own)


def check_training_degrees(graph: OperatorGraph, setup: TrainingSetup) -> None:
    """Refuse degrees that no training loop divides a network by.

    Layers of a graph with attention are its attentions; stages of a pipeline take as many of them
    each, or as many equal blocks. Those of another are its operators with weights, but for norms,
    and each device has at least one of a pipeline's layers, or of a divided layer's channels.

    Raises:
        BadRequest: heads, channels or layers cannot be divided so; its field is the degree.
    """
    heads, stages = attention_heads(graph), setup.pipeline_parallel
    with in_field("tensor_parallel"):
        _check_heads(setup.tensor_parallel, lambda tensor: not any(h % tensor for h in heads))
        if not heads:
            _check_channels(setup.tensor_parallel, graph)
    if stages == 1:
        return
    layers = [op for op in graph.operators if op.parameter_elements and "norm" not in op.kind]
    blocks = sum(part.block for part in parts(graph))
    with in_field("pipeline_parallel"):
        _check_layers(stages, max(len(heads), blocks) if heads else len(layers))
        if len(heads) % stages and (blocks % stages or not blocks):
            raise BadRequest(
                f"Pipeline parallel {stages} does not divide the layers of the model evenly: "
                f"{len(heads)} have attention."
            )


def _check_heads(tensor: int, divides: Callable[[int], bool]) -> None:
    if not divides(tensor):
        able = [each for each in range(1, MOST_DEGREE + 1) if divides(each)]
        raise BadRequest(
            f"Tensor parallel {tensor} does not divide the attention heads of the model evenly; "
            f"{', '.join(map(str, able))} do."
        )


def _check_channels(tensor: int, graph: OperatorGraph) -> None:
    """Refuse more devices than the narrowest of the layers that they share has channels."""
    divided = [op for op in graph.operators if op.parameter_elements and divided_weights(op)]
    channels = [max(shape[-1] for shape in _shapes(op)) for op in divided if _shapes(op)]
    if tensor > min(channels, default=1):
        narrow = f"the narrowest has {min(channels)} channels" if channels else "there is none"
        raise BadRequest(
            f"Tensor parallel {tensor} is more than the network's linear layers and embeddings can "
            f"be divided by: {narrow}."
        )


def _shapes(op: Operator) -> list[Shape]:
    """Shapes of what a layer reads and gives, that have dimensions."""
    return [shape for shape in (*op.input_shapes, *op.output_shapes) if shape]


def _check_layers(pipeline: int, layers: int) -> None:
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
