"""Torch modules as operator graphs: `torch.export` on the meta device, without weights."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.features.readers.aten import plain_name
from forerun.features.readers.aten_graph import AtenGraph, Call, Meta, Ref
from forerun.features.readers.probe import PROBE_BATCH, Probe

SOURCE = "torch_export"


def trace_module(
    module: Any,
    inputs: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    batch_size: int = 1,
) -> OperatorGraph:
    """The graph of an `nn.Module` in inference, at `batch_size`.

    The module is moved to the meta device (its weights are lost) and put in evaluation mode. It is
    traced at a large prime batch, so that every dimension that grows with the batch is known; a
    module that cannot run at any batch is traced at the inputs' own.

    Args:
        module: an `nn.Module`.
        inputs: positional example tensors; the first dimension of each is the batch.
        keywords: keyword example tensors, likewise.
        batch_size: samples of the graph's shapes.

    Raises:
        MissingExtra: torch is not installed.
        UnreadableModel: `torch.export` cannot trace the module.
    """
    torch = _torch()
    module = module.eval().to("meta")
    given = dict(keywords or {})
    why: Exception | None = None
    for probing in (True, False):
        size = PROBE_BATCH if probing else None
        try:
            with torch.no_grad():
                program = torch.export.export(
                    module,
                    tuple(_resized(torch, x, size) for x in inputs),
                    {name: _resized(torch, x, size) for name, x in given.items()},
                    strict=False,
                )
        except Exception as error:
            # Whatever a user's module raises means that it cannot be traced this way.
            why = error
            continue
        return _graph_of(program, probing, batch_size, _batch(inputs, given))
    reason = str(why).strip().splitlines()[0][:200] if why and str(why) else type(why).__name__
    raise UnreadableModel(type(module).__name__, f"torch.export cannot trace it: {reason}.")


def trace_callable(name: str, *, batch_size: int = 1) -> OperatorGraph:
    """The graph of what `module:function` returns: a module, or (module, inputs[, keywords]).

    Raises:
        MissingExtra: torch is not installed.
        UnreadableModel: there is no such function, or it does not return that.
    """
    torch = _torch()
    place, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with torch.device("meta"):
            made = getattr(importlib.import_module(place), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UnreadableModel(name, f"{error}; name a function without arguments.") from None
    parts = made if isinstance(made, tuple) else (made, ())
    if not isinstance(parts[0], torch.nn.Module) or len(parts) > 3:
        raise UnreadableModel(name, "it must return (nn.Module, example inputs).")
    return trace_module(*parts, batch_size=batch_size)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("Tracing a torch module", "train") from None
    return torch


def _resized(torch: Any, tensor: Any, batch: int | None) -> Any:
    """The example on the meta device, with another batch size unless that is None."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    shape = list(tensor.shape)
    if batch is not None and shape:
        shape[0] = batch
    return torch.empty(shape, dtype=tensor.dtype, device="meta")


def _batch(inputs: Sequence[Any], keywords: Mapping[str, Any]) -> int:
    shapes: list[tuple[int, ...]] = [getattr(x, "shape", ()) for x in (*inputs, *keywords.values())]
    return next((int(shape[0]) for shape in shapes if len(shape)), 1)


def _graph_of(program: Any, probing: bool, batch_size: int, own: int) -> OperatorGraph:
    signature = program.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors: dict[str, Meta] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for suffix, tensor in _outputs(value):
            tensors[node.name + suffix] = tensor
    weights = {
        name: prod(tensors[name].shape)
        for name in held
        if name in tensors and tensors[name].floating
    }
    weights |= {name: 0 for name in held if name not in weights}
    graph = AtenGraph(tensors, weights, Probe(probing))
    for node in program.graph.nodes:
        if node.op == "call_function":
            _call(graph, node)
    return graph.graph(SOURCE, batch_size if probing else own)


def _outputs(value: Any) -> list[tuple[str, Meta]]:
    if isinstance(value, list | tuple):
        return [(f".{i}", _meta(v)) for i, v in enumerate(value) if hasattr(v, "shape")]
    return [("", _meta(value))] if hasattr(value, "shape") else []


def _meta(tensor: Any) -> Meta:
    return Meta(
        tuple(int(d) for d in tensor.shape),
        tuple(int(s) for s in tensor.stride()),
        str(tensor.dtype),
        bool(tensor.dtype.is_floating_point),
    )


def _call(graph: AtenGraph, node: Any) -> None:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        if "getitem" in str(node.target):
            graph.alias(node.name, f"{node.args[0].name}.{node.args[1]}")
        return
    names = [argument.name for argument in schema.arguments]
    arguments = {
        name: _argument(value)
        for name, value in (*zip(names, node.args, strict=False), *node.kwargs.items())
    }
    value = node.meta.get("val")
    outputs = tuple(node.name + suffix for suffix, _ in _outputs(value))
    graph.add(Call(plain_name(str(node.target)), arguments, outputs))


def _argument(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_argument(v) for v in value]
    return Ref(value.name) if hasattr(value, "meta") and hasattr(value, "name") else value
