"""Operator graphs of whatever describes a network: files, names, modules, programs, configurations.

Nothing is downloaded, and the weights of a module are neither read nor changed.
"""

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from forerun.data.errors import InputError, UnreadableModel
from forerun.data.graph import FORMAT, OperatorGraph
from forerun.features.readers import read_graph
from forerun.features.readers.hugging_face_cache import HUGGING_FACE
from forerun.features.readers.input_sizes import InputSizes
from forerun.features.readers.model_zoo import PREFIX as TIMM
from forerun.features.readers.named import graph_named
from forerun.features.readers.operator_json import graph_of

if TYPE_CHECKING:
    import onnx
    import torch
    import transformers

Model: TypeAlias = (
    "str | PathLike[str] | bytes | OperatorGraph | Mapping[str, Any] | onnx.ModelProto"
    " | torch.nn.Module | torch.export.ExportedProgram | transformers.PretrainedConfig"
)
"""What describes a network: a path, the contents of a file, a name, an operator graph or a
configuration as a mapping, or an object of onnx, torch or transformers."""


@dataclass(frozen=True, slots=True)
class Reading(InputSizes):
    """How a model is read: at which sizes, and with which tensors.

    Attributes:
        example_inputs: tensors that a torch module takes: one, a sequence, or a mapping by name.
    """

    example_inputs: Any = None


def name_of(model: Any) -> str:
    """A short name of a model for the heading of an answer."""
    if isinstance(model, str) and model.startswith((TIMM, HUGGING_FACE)):
        return model
    if isinstance(model, str | PathLike):
        return Path(model).name
    if isinstance(model, Mapping):
        return str(model.get("model_type") or model.get("kind") or "operator graph")
    if isinstance(model, OperatorGraph):
        return f"graph {model.digest[:8]}"
    graph_name = getattr(getattr(model, "graph", None), "name", None)
    return graph_name if isinstance(graph_name, str) and graph_name else type(model).__name__


def read_model(model: Any, how: Reading) -> OperatorGraph:
    """The operator graph of a model in any of the forms of `Model`.

    Raises:
        UnreadableModel: it is damaged, unknown, or cannot be traced; the message says why.
        MissingExtra: the form needs an optional part of the installation.
        InputError: it is of no known form, or a module comes without example inputs.
    """
    if isinstance(model, OperatorGraph):
        return model
    if isinstance(model, bytes):
        return _read(model, how)
    if isinstance(model, str | PathLike):
        file = Path(model)
        return _read(file, how) if file.exists() else graph_named(fspath(model), how)
    if isinstance(model, Mapping):
        return _read_mapping(model, how)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _read_module(model, how)
    if torch is not None and isinstance(model, torch.export.ExportedProgram):
        return _read_program(torch, model, how)
    if hasattr(model, "SerializeToString"):
        return _read_onnx(model, how)
    if hasattr(model, "to_json_string") and hasattr(model, "model_type"):
        return _read_configuration(json.loads(model.to_json_string(use_diff=False)), how)
    raise InputError(
        f"A model of type {type(model).__name__} cannot be read. Give a path, an onnx.ModelProto, "
        "a torch module with example_inputs, a torch.export program, a configuration of Hugging "
        "Face, an operator graph, or a name such as 'timm:resnet50'."
    )


def _read(source: Path | bytes, how: Reading) -> OperatorGraph:
    sizes = {own.name: getattr(how, own.name) for own in fields(InputSizes)}
    return read_graph(source, **sizes)


def _read_mapping(model: Mapping[str, Any], how: Reading) -> OperatorGraph:
    if model.get("format") == FORMAT:
        return graph_of(model, "model")
    if "model_type" in model:
        return _read_configuration(model, how)
    raise InputError(
        "A mapping is a configuration of Hugging Face with 'model_type', an operator graph with "
        f"'format': {FORMAT!r}, or a workload with 'kind'; this one has none of these."
    )


def _read_configuration(config: Mapping[str, Any], how: Reading) -> OperatorGraph:
    return _read(json.dumps(dict(config)).encode(), how)


def _read_onnx(model: Any, how: Reading) -> OperatorGraph:
    try:
        content: bytes = model.SerializeToString()
    except ValueError as error:
        # Protobuf refuses messages over 2 GiB.
        raise UnreadableModel(
            name_of(model), f"{error}; save it with external data and give the path."
        ) from None
    return _read(content, how)


def _read_program(torch: Any, program: Any, how: Reading) -> OperatorGraph:
    with TemporaryDirectory(prefix="forerun-") as folder:
        file = Path(folder) / "program.pt2"
        torch.export.save(program, file)
        return _read(file, how)


def _read_module(module: Any, how: Reading) -> OperatorGraph:
    from forerun.features.readers.torch_trace import trace_module

    config: Any = getattr(module, "config", None)
    if how.example_inputs is None and hasattr(config, "to_json_string"):
        content = json.loads(config.to_json_string(use_diff=False))
        return _read_configuration(content | {"architectures": [type(module).__name__]}, how)
    if how.example_inputs is None:
        raise InputError(
            f"{type(module).__name__} is a torch module: give example_inputs=, such as "
            "torch.empty(1, 3, 224, 224); the first dimension is the batch."
        )
    positional, keywords = _inputs(how.example_inputs)
    without = _without_weights(module)
    return trace_module(without, positional, keywords, batch_size=how.batch_size, marks=True)


def _inputs(given: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(given, Mapping):
        return (), given
    return (tuple(given) if isinstance(given, list | tuple) else (given,)), {}


def _without_weights(module: Any) -> Any:
    """A copy of a module on the meta device; weights that are shared stay shared."""
    import torch

    held: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        empty = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            empty = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
        held[id(tensor)] = empty
    return copy.deepcopy(module, held)
