"""Hugging Face `config.json` files as operator graphs: built and traced on the meta device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import OperatorGraph

DEFAULT_SEQUENCE = 128
_LARGEST_LAYERS = 1_000
_LARGEST_WIDTH = 1 << 20


@dataclass(frozen=True)
class HuggingFaceReader:
    """Reads a model's `config.json`; no weights, no network, no remote code."""

    name: str = "huggingface"

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """JSON that says its `model_type`."""
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
        _check_sizes(where, given)
        return _traced(where, given, batch_size, sequence_length or DEFAULT_SEQUENCE)


def _check_sizes(where: str, given: Mapping[str, Any]) -> None:
    for field, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        limit = _LARGEST_LAYERS if "layer" in field else _LARGEST_WIDTH
        sized = any(word in field for word in ("layer", "size", "dim", "heads", "width"))
        if sized and not -1 <= value <= limit:
            raise UnreadableModel(where, f"{field} is {value}; up to {limit} can be traced.")


def _traced(where: str, given: Mapping[str, Any], batch_size: int, sequence: int) -> OperatorGraph:
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtra("Reading a Hugging Face configuration", "train") from None
    from forerun.features.readers.torch_trace import trace_module

    rest = {k: v for k, v in given.items() if k not in ("model_type", "auto_map")}
    try:
        config = transformers.AutoConfig.for_model(str(given.get("model_type")), **rest)
        with torch.device("meta"):
            model = _built(transformers, config, given.get("architectures"))
        inputs = _inputs(torch, model, config, sequence)
    except Exception as error:
        # A configuration can fail anywhere inside the model's own constructor.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UnreadableModel(where, f"transformers cannot build it: {reason}.") from None
    graph = trace_module(model, (), inputs, batch_size=batch_size)
    return replace(graph, source="huggingface")


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
        return {main: torch.empty((1, sequence), dtype=torch.int64, device="meta")}
    raise ValueError(f"models with the main input {main} cannot be traced yet")
