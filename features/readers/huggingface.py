"""Hugging Face `config.json` files as operator graphs: built and traced on the meta device."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from forerun.data.errors import BadShape, InputError, MissingExtra, UnreadableModel
from forerun.data.graph import BindingReason, BoundDimension, OperatorGraph
from forerun.features.graphs.dropout import ATTRIBUTE as DROPOUT
from forerun.features.readers.input_sizes import (
    DEFAULT_CHANNELS,
    DEFAULT_IMAGE_SIZE,
    DEFAULT_SEQUENCE_LENGTH,
    InputSizes,
)
from forerun.features.readers.language_model.reader import read_language_model
from forerun.features.readers.operator_json import parse_json

_LARGEST_LAYERS = 1_000
_LARGEST_WIDTH = 1 << 20
_LARGEST_NUMBER = 1 << 24
_COUNTS_LAYERS = ("layer", "depth", "block", "stage", "expert")
_SIZES = ("size", "dim", "heads", "width", "label", "channels", "embd")
_NOT_ARCHITECTURE = ("model_type", "auto_map", "use_pretrained_backbone", "quantization_config")
"""Fields about remote code or about loading weights, neither of which is done here."""
_ATTENTION_DROPOUT = (
    *("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "attn_dropout"),
    "attention_dropout_prob",
)


class HuggingFaceReader:
    """Reads a model's `config.json`; no weights, no network, no remote code."""

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether it is JSON with a `model_type`."""
        return head.lstrip()[:1] == b"{" and b'"model_type"' in head

    def read(self, source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
        """The graph of the architecture that the configuration names, at these sizes.

        Raises:
            BadShape: shapes are given, or an image size for a network that reads no images.
            MissingExtra: torch or transformers is not installed.
            UnreadableModel: the configuration is damaged, unknown, or cannot be traced.
        """
        where = source.name if isinstance(source, Path) else "the upload"
        content = source.read_bytes() if isinstance(source, Path) else source
        given = parse_json(content, where)
        check_sizes(where, "", given)
        _check_layers(where, given)
        if sizes.shapes:
            raise BadShape(f"{where} takes no shapes; give a sequence length or an image size.")
        return _traced(where, given, sizes)


def check_sizes(where: str, field: str, value: Any) -> None:
    """Refuse numbers, at any depth, with which building a model would take hours."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            check_sizes(where, str(name), part)
    elif isinstance(value, list):
        if any(word in field for word in _COUNTS_LAYERS):
            check_sizes(where, field, sum(v for v in value if isinstance(v, int)))
        for part in value:
            check_sizes(where, field, part)
    elif isinstance(value, int) and not isinstance(value, bool):
        limit = _limit(field)
        if not -limit <= value <= limit:
            raise UnreadableModel(where, f"{field} is {value}; up to {limit} can be traced.")


def _check_layers(where: str, given: Mapping[str, Any]) -> None:
    """Refuse a language model that lacks a size, for which transformers would take its default.

    Raises:
        UnreadableModel: a field that sizes follow from is missing.
    """
    try:
        read_language_model(given)
    except InputError as error:
        _, _, why = str(error).partition(": ")
        if error.field and why.startswith(f"{error.field[-1]} is missing"):
            raise UnreadableModel(where, why) from None


def _limit(field: str) -> int:
    sized = any(word in field for word in _SIZES)
    if any(word in field for word in _COUNTS_LAYERS) and not sized:
        return _LARGEST_LAYERS
    return _LARGEST_WIDTH if sized else _LARGEST_NUMBER


def _traced(where: str, given: Mapping[str, Any], sizes: InputSizes) -> OperatorGraph:
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtra("Reading a Hugging Face configuration", "train") from None
    from forerun.features.readers.torch_trace import declare_operators, trace_module, traced_in_part

    declare_operators()
    rest = {k: v for k, v in given.items() if k not in _NOT_ARCHITECTURE}
    try:
        config = transformers.AutoConfig.for_model(str(given.get("model_type")), **rest)
        own = getattr(config, "image_size", None)
        if sizes.image_size is not None and own is not None:
            pair = [sizes.image_size] * 2
            config.image_size = pair if isinstance(own, list | tuple) else sizes.image_size
        with torch.device("meta"):
            model = _built(transformers, config, given.get("architectures"))
        inputs, bound = _inputs(torch, model, config, sizes)
    except BadShape:
        raise
    except Exception as error:
        # A configuration can fail anywhere inside the model's constructor.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UnreadableModel(where, f"transformers cannot build it: {reason}.") from None

    def trace(module: Any) -> OperatorGraph:
        return trace_module(module, (), inputs, batch_size=sizes.batch_size, marks=True)

    graph = traced_in_part(model, trace) or trace(model)
    batch = [BoundDimension(name, 0, "batch", graph.batch_size, "batch") for name in inputs]
    return replace(
        with_attention_dropout(graph, config),
        source="huggingface",
        bound_dimensions=(*batch, *bound),
    )


def with_attention_dropout(graph: OperatorGraph, config: Any) -> OperatorGraph:
    """The graph, its attention marked with the probability that training drops of its scores."""
    text = getattr(config, "text_config", None) or config
    found = (getattr(text, name, None) for name in _ATTENTION_DROPOUT)
    probability = next((p for p in found if isinstance(p, int | float)), 0.0)
    if not probability:
        return graph
    operators = tuple(
        replace(op, attributes={**op.attributes, DROPOUT: float(probability)})
        if op.kind == "attention"
        else op
        for op in graph.operators
    )
    return replace(graph, operators=operators)


def _built(transformers: Any, config: Any, architectures: Any) -> Any:
    """The architecture named first, if transformers has it, else the bare model."""
    config.use_cache = False
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    cls = getattr(transformers, str(name), None) if name else None
    if cls is not None and isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
        return cls(config)
    return transformers.AutoModel.from_config(config)


def _inputs(
    torch: Any, model: Any, config: Any, sizes: InputSizes
) -> tuple[dict[str, Any], list[BoundDimension]]:
    """Example tensors by the model's main input, and the sizes that the configuration leaves open.

    Raises:
        BadShape: an image size is given for a network that reads no images.
        ValueError: networks with this main input cannot be traced.
    """
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        return _images(torch, config, sizes)
    if sizes.image_size is not None:
        raise BadShape(f"An image size is given, but the network reads {main}, not images.")
    text: Sequence[str] = ["input_ids"]
    inputs: dict[str, Any] = {}
    if main == "input_features" and hasattr(config, "max_source_positions"):
        # Speech networks halve the number of frames in front of their encoder.
        frames = 2 * config.max_source_positions
        inputs[main] = torch.empty((1, config.num_mel_bins, frames), device="meta")
        text = ["decoder_input_ids"]
    elif main != "input_ids":
        raise ValueError(f"models with the main input {main} cannot be traced yet")
    elif getattr(config, "is_encoder_decoder", False):
        text = ["input_ids", "decoder_input_ids"]
    length, given = sizes.sequence_length or DEFAULT_SEQUENCE_LENGTH, sizes.sequence_length
    why: BindingReason = "given" if given else "default_sequence_length"
    tokens = torch.empty((1, length), dtype=torch.int64, device="meta")
    bound = [BoundDimension(name, 1, "sequence", length, why) for name in text]
    return inputs | dict.fromkeys(text, tokens), bound


def _images(
    torch: Any, config: Any, sizes: InputSizes
) -> tuple[dict[str, Any], list[BoundDimension]]:
    """Example images of the size that is given, else of the configuration's, else of 224 pixels."""
    own = getattr(config, "image_size", None)
    size = own or sizes.image_size or DEFAULT_IMAGE_SIZE
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(config, "num_channels", DEFAULT_CHANNELS)
    inputs = {"pixel_values": torch.empty((1, channels, height, width), device="meta")}
    if own and sizes.image_size is None:
        return inputs, []
    why: BindingReason = "given" if sizes.image_size else "default_image_size"
    return inputs, [
        BoundDimension("pixel_values", 2, "height", height, why),
        BoundDimension("pixel_values", 3, "width", width, why),
    ]
