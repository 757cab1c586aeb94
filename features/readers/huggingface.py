"""Hugging Face `config.json` files as operator graphs: built and traced on the meta device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.features.graphs.dropout import ATTRIBUTE as DROPOUT

DEFAULT_SEQUENCE = 128
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


@dataclass(frozen=True)
class HuggingFaceReader:
    """Reads a model's `config.json`; no weights, no network, no remote code."""

    name: str = "huggingface"

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether it is JSON with a `model_type`."""
        return head.lstrip()[:1] == b"{" and b'"model_type"' in head

    def read(
        self, source: Path | bytes, *, batch_size: int = 1, sequence_length: int | None = None
    ) -> OperatorGraph:
        """The graph of the architecture that the configuration names, at `batch_size`.

        Raises:
            MissingExtra: torch or transformers is not installed.
            UnreadableModel: the configuration is damaged, unknown, or cannot be traced.
        """
        where = source.name if isinstance(source, Path) else "the upload"
        content = source.read_bytes() if isinstance(source, Path) else source
        try:
            given = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UnreadableModel(where, f"it is not sound JSON: {error}.") from None
        if not isinstance(given, dict):
            raise UnreadableModel(where, "it is JSON, but not an object.")
        _check_sizes(where, "", given)
        return _traced(where, given, batch_size, sequence_length or DEFAULT_SEQUENCE)


def _check_sizes(where: str, field: str, value: Any) -> None:
    """Refuse numbers, at any depth, with which building a model would take hours."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_sizes(where, str(name), part)
    elif isinstance(value, list):
        if any(word in field for word in _COUNTS_LAYERS):
            _check_sizes(where, field, sum(v for v in value if isinstance(v, int)))
        for part in value:
            _check_sizes(where, field, part)
    elif isinstance(value, int) and not isinstance(value, bool):
        limit = _limit(field)
        if not -limit <= value <= limit:
            raise UnreadableModel(where, f"{field} is {value}; up to {limit} can be traced.")


def _limit(field: str) -> int:
    sized = any(word in field for word in _SIZES)
    if any(word in field for word in _COUNTS_LAYERS) and not sized:
        return _LARGEST_LAYERS
    return _LARGEST_WIDTH if sized else _LARGEST_NUMBER


def _traced(where: str, given: Mapping[str, Any], batch_size: int, sequence: int) -> OperatorGraph:
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtra("Reading a Hugging Face configuration", "train") from None
    from forerun.features.readers.repeated_layers import traced_in_part
    from forerun.features.readers.torch_trace import trace_module
    from forerun.features.readers.torchvision_operators import declare_operators

    declare_operators()
    rest = {k: v for k, v in given.items() if k not in _NOT_ARCHITECTURE}
    try:
        config = transformers.AutoConfig.for_model(str(given.get("model_type")), **rest)
        with torch.device("meta"):
            model = _built(transformers, config, given.get("architectures"))
        inputs = _inputs(torch, model, config, sequence)
    except Exception as error:
        # A configuration can fail anywhere inside the model's constructor.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UnreadableModel(where, f"transformers cannot build it: {reason}.") from None

    def trace(module: Any) -> OperatorGraph:
        return trace_module(module, (), inputs, batch_size=batch_size, marks=True)

    graph = traced_in_part(model, trace) or trace(model)
    return replace(with_attention_dropout(graph, config), source="huggingface")


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


def _inputs(torch: Any, model: Any, config: Any, sequence: int) -> dict[str, Any]:
    """Example tensors by the model's main input."""
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = getattr(config, "num_channels", 3)
        return {main: torch.empty((1, channels, height, width), device="meta")}
    if main == "input_ids":
        tokens = torch.empty((1, sequence), dtype=torch.int64, device="meta")
        both = getattr(config, "is_encoder_decoder", False)
        return {main: tokens, "decoder_input_ids": tokens} if both else {main: tokens}
    raise ValueError(f"models with the main input {main} cannot be traced yet")
