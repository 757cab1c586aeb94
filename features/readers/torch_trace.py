"""Torch modules as operator graphs: `torch.export` on the meta device, without weights."""

import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.features.readers.aten import operator_name
from forerun.features.readers.aten_graph import AtenGraph, Call, Ref
from forerun.features.readers.probe import PROBE_BATCH, Probe
from forerun.features.readers.strides import Meta
from forerun.features.readers.torch_sizes import ASSUMPTION, Bounds, bounds_of, meta_of

SOURCE = "torch_export"


def trace_module(
    module: Any,
    inputs: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    batch_size: int = 1,
    marks: bool = False,
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
        marks: as in `AtenGraph`; graphs with marks have another digest than those without.

    Raises:
        MissingExtra: torch is not installed.
        UnreadableModel: `torch.export` cannot trace the module.
    """
    torch = _torch()
    owners = _owners(module)
    module = module.eval().to("meta")
    given = dict(keywords or {})
    why: Exception | None = None
    for probing in (True, False):
        size = PROBE_BATCH if probing else None
        try:
            with torch.no_grad(), warnings.catch_warnings():
                # Export warns of attributes set during the pass, such as an LSTM's flat weights.
                warnings.simplefilter("ignore")
                program = torch.export.export(
                    module,
                    tuple(_resized(torch, x, size) for x in inputs),
                    {name: _resized(torch, x, size) for name, x in given.items()},
                    strict=False,
                )
        except Exception as error:
            # Any exception of a user's module means that it cannot be traced like this.
            why = error
            continue
        own = _batch(inputs, given)
        return _graph_of(program, owners, probing, batch_size if probing else own, marks=marks)
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
    return trace_module(*parts, batch_size=batch_size, marks=True)


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


def _owners(module: Any) -> dict[str, str]:
    """Name of a parameter or buffer -> the first name of the same tensor, for shared weights."""
    first: dict[int, str] = {}
    named = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def _graph_of(
    program: Any, owners: Mapping[str, str], probing: bool, batch_size: int, *, marks: bool = False
) -> OperatorGraph:
    signature = program.graph_signature
    held: dict[str, str] = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    bounds = bounds_of(program)
    tensors = dict(_tensors(program.graph_module, "", bounds))
    weights: dict[str, int] = {}
    counted: set[str] = set()
    for name, target in held.items():
        owner = owners.get(target, target)
        kept = name in tensors and tensors[name].floating and owner not in counted
        weights[name] = prod(tensors[name].shape) if kept else 0
        counted.add(owner)
    graph = AtenGraph(tensors, weights, Probe(probing), marks=marks)
    _visit(graph, program.graph_module, "")
    made = graph.graph(SOURCE, batch_size)
    return replace(made, assumptions=(ASSUMPTION,)) if bounds else made


def _tensors(module: Any, prefix: str, bounds: Bounds) -> Iterator[tuple[str, Meta]]:
    """Every tensor of a program and of the programs inside it, by prefixed name."""
    for node in module.graph.nodes:
        for suffix, tensor in _outputs(node.meta.get("val")):
            yield f"{prefix}{node.name}{suffix}", meta_of(tensor, bounds)
        inner = _inner(module, node)
        if inner is not None:
            yield from _tensors(inner, f"{prefix}{node.name}/", bounds)


def _visit(graph: AtenGraph, module: Any, prefix: str) -> list[str]:
    """Add the calls of a program; returns the names of its results."""
    returned: list[str] = []
    for node in module.graph.nodes:
        if node.op == "output":
            returned = [prefix + source.name for source in node.all_input_nodes]
        if node.op != "call_function":
            continue
        inner = _inner(module, node)
        if inner is None:
            _call(graph, node, prefix)
        else:
            _enter(graph, inner, node, prefix)
    return returned


def _inner(module: Any, node: Any) -> Any:
    """The one program that a region (`autocast`, `no_grad`, checkpointing) wraps, else None."""
    if node.op != "call_function" or hasattr(node.target, "_schema"):
        return None
    found = [getattr(module, str(n.target), None) for n in node.all_input_nodes if _is_held(n)]
    programs = [part for part in found if hasattr(part, "graph")]
    return programs[0] if len(programs) == 1 else None


def _is_held(node: Any) -> bool:
    return bool(node.op == "get_attr")


def _enter(graph: AtenGraph, inner: Any, node: Any, prefix: str) -> None:
    """Add the calls of a wrapped region in its place."""
    deeper = f"{prefix}{node.name}/"
    given = [n for n in node.all_input_nodes if not _is_held(n)]
    places = [n for n in inner.graph.nodes if n.op == "placeholder"]
    for place, source in zip(places, given, strict=False):
        graph.alias(deeper + place.name, prefix + source.name)
    returned = _visit(graph, inner, deeper)
    names = [f"{prefix}{node.name}{suffix}" for suffix, _ in _outputs(node.meta.get("val"))]
    for name, source in zip(names, returned, strict=False):
        graph.alias(name, source)


def _outputs(value: Any) -> list[tuple[str, Any]]:
    """Suffix of a result's name -> the tensor."""
    if isinstance(value, list | tuple):
        return [(f".{i}", v) for i, v in enumerate(value) if hasattr(v, "shape")]
    return [("", value)] if hasattr(value, "shape") else []


def _call(graph: AtenGraph, node: Any, prefix: str) -> None:
    outputs = tuple(f"{prefix}{node.name}{suffix}" for suffix, _ in _outputs(node.meta.get("val")))
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        names = [argument.name for argument in schema.arguments]
        given = (*zip(names, node.args, strict=False), *node.kwargs.items())
        arguments = {name: _argument(value, prefix) for name, value in given}
        graph.add(Call(operator_name(str(node.target)), arguments, outputs))
    elif "getitem" in str(node.target):
        graph.alias(prefix + node.name, f"{prefix}{node.args[0].name}.{node.args[1]}")
    elif outputs:
        # Control flow: which branch runs, and how often, is not known before the run.
        reads = [Ref(prefix + n.name) for n in node.all_input_nodes if not _is_held(n)]
        graph.add(Call(f"torch::{node.target}", {"operands": reads}, outputs))


def _argument(value: Any, prefix: str) -> Any:
    if isinstance(value, list | tuple):
        return [_argument(v, prefix) for v in value]
    return Ref(prefix + value.name) if hasattr(value, "meta") and hasattr(value, "name") else value
