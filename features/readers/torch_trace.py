"""Torch modules as operator graphs: `torch.export` on the meta device, without weights.

Some sizes depend on the data: how many boxes a suppression keeps, or how many elements a mask
selects, is not known before the run. The most that the operator's input allows is taken.

Of networks of many equal layers, three are traced in place of all: a list of modules with equal
classes, shapes of weights and plain attributes (except their index) is cut to two and to three.
Where the graph of three is that of two with its last block once more, the graph of all is built by
repeating that block; where anything differs, the whole network is traced.
"""

import importlib
import logging
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.lazy import torch
from forerun.features.graphs.blocks import parts
from forerun.features.readers.aten_graph import AtenGraph, Call, Meta, Ref, operator_name
from forerun.features.readers.input_sizes import PROBE_BATCH, Probe

_MISSING = ("nms", "qnms")
_SCHEMA = "Tensor dets, Tensor scores, float iou_threshold"


@lru_cache(maxsize=1)
def declare_operators() -> Any:
    """Import torchvision, with its operators declared where it did not bring them.

    Returns:
        What holds the declarations, kept alive by this function; None where none was needed, or
        torchvision is not installed.
    """
    if find_spec("torchvision") is None:
        return None
    from torch import library

    try:
        import torchvision
    except RuntimeError:
        declared: Any = library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in _MISSING:
            declared.define(f"{operator}({_SCHEMA}) -> Tensor")
        import torchvision  # noqa: F401

        return declared
    return None


Bounds = Mapping[Any, int]
"""Symbol of a size that depends on the data -> the most that it can be."""

ASSUMPTION = (
    "how many results some operators have depends on the data; the most that is possible is taken"
)
_KEEPS_ROWS = "nms"
"""In the names of operators that choose rows of their first operand, and not elements."""


def bounds_of(program: Any) -> dict[Any, int]:
    """The bounds of a program's sizes that depend on the data, by the operators that make them."""
    bounds: dict[Any, int] = {}
    for module in program.graph_module.modules():
        for node in module.graph.nodes if hasattr(module, "graph") else ():
            for symbol in _symbols(node.meta.get("val")):
                if symbol not in bounds:
                    bounds[symbol] = _most(node, bounds)
    return bounds


def meta_of(tensor: Any, bounds: Bounds) -> Meta:
    """Shape, strides and type of a tensor of the program."""
    return Meta(
        tuple(_size(d, bounds) for d in tensor.shape),
        tuple(_size(s, bounds) for s in tensor.stride()),
        str(tensor.dtype),
        bool(tensor.dtype.is_floating_point),
    )


def _symbols(value: Any) -> Iterator[Any]:
    """The symbols of sizes that depend on the data, of one result or several."""
    for tensor in value if isinstance(value, list | tuple) else (value,):
        for size in getattr(tensor, "shape", ()):
            if hasattr(size, "node") and not size.node.has_hint():
                yield from sorted(size.node.expr.free_symbols, key=str)


def _most(node: Any, bounds: Bounds) -> int:
    """The most results that an operator can have: the rows or the elements of its first operand."""
    for source in node.all_input_nodes:
        tensor = source.meta.get("val")
        if hasattr(tensor, "shape"):
            shape = [_size(d, bounds) for d in tensor.shape]
            return max(1, *shape[:1]) if _KEEPS_ROWS in str(node.target) else max(1, prod(shape))
    return 1


def _size(size: Any, bounds: Bounds) -> int:
    if hasattr(size, "node") and not size.node.has_hint():
        return int(size.node.expr.xreplace(dict(bounds)))
    return int(size)


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
    torch = torch_module()
    owners = _owners(module)
    module = module.eval().to("meta")
    given = dict(keywords or {})
    why: Exception | None = None
    for probing in (True, False):
        size = PROBE_BATCH if probing else None
        try:
            with torch.no_grad(), warnings.catch_warnings(), _silent():
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
    assert why is not None
    mend = "give example inputs that it runs with"
    if type(why).__name__ == OF_VALUES:
        mend = "values decide what runs: use torch.where or torch.cond, or leave the branch out"
    said = f"torch.export cannot trace it: {_said(why)}; {mend}. FORERUN_DEBUG=1 shows more."
    raise UnreadableModel(type(module).__name__, said) from why


OF_VALUES: Final = "GuardOnDataDependentSymNode"
"""Name of the error of torch where a branch depends on values of a tensor."""


@contextmanager
def _silent() -> Iterator[None]:
    """Hide what torch logs and prints about a failed export; the error says the same."""
    named = logging.root.manager.loggerDict.items()
    loggers = [one for name, one in named if name.partition(".")[0] == "torch"]
    enabled = [one for one in loggers if isinstance(one, logging.Logger) and not one.disabled]
    for logger in enabled:
        logger.disabled = True
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        for logger in enabled:
            logger.disabled = False


def _said(error: Exception) -> str:
    """The first line of an error of a user's code, with the last place of that code in it."""
    others = (Path(torch.__file__).parent, Path(__file__).parent, sysconfig.get_path("stdlib"))
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith(("<", *map(str, others)))]
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno} in {own[-1].name})" if own else ""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0][:200].rstrip('. ')}{where}"


def trace_callable(name: str) -> OperatorGraph:
    """The graph of what `module:function` returns: a module, or (module, inputs[, keywords]).

    Raises:
        MissingExtra: torch is not installed.
        UnreadableModel: there is no such function, or it does not return that.
    """
    torch = torch_module()
    place, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with torch.device("meta"):
            made = getattr(importlib.import_module(place), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UnreadableModel(name, f"{error}; name a function without arguments.") from error
    except Exception as error:
        raise UnreadableModel(name, f"it fails: {type(error).__name__}: {_said(error)}.") from error
    parts = made if isinstance(made, tuple) else (made, ())
    if not isinstance(parts[0], torch.nn.Module) or len(parts) > 3:
        raise UnreadableModel(name, "it must return (nn.Module, example inputs).")
    return trace_module(*parts, marks=True)


def torch_module() -> Any:
    """The module torch; raises `MissingExtra` where it is not installed."""
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


FEWEST_LAYERS: Final = 5
"""Fewest layers: below, tracing two and three layers takes as long as tracing all."""
_NUMBERS = frozenset({"layer_idx", "layer_id", "layer_number", "training"})
_PLAIN = (bool, int, float, str, tuple, type(None))


def traced_in_part(model: Any, trace: Callable[[Any], OperatorGraph]) -> OperatorGraph | None:
    """The graph of a network from those of its first layers; None where it must be traced whole.

    Args:
        model: an `nn.Module`; it is restored before this returns.
        trace: traces a module.
    """
    found = list(_lists_of_equal_layers(model))
    if len(found) != 1:
        return None
    owner, name, layers = found[0]
    try:
        graphs = []
        for count in (2, 3):
            setattr(owner, name, type(layers)(list(layers)[:count]))
            graphs.append(trace(model))
    finally:
        setattr(owner, name, layers)
    two, three = graphs
    again = with_blocks(two, 1, three)
    if again is None or again.operators != three.operators:
        return None
    return with_blocks(three, len(layers) - 3, two)


def with_blocks(graph: OperatorGraph, more: int, other: OperatorGraph) -> OperatorGraph | None:
    """The graph with its last repeated block several times more; None where no block repeats.

    Args:
        graph: operators with one run of equal blocks.
        more: how many blocks are added.
        other: the same network with one block more or less, which gives the weights of a block.
    """
    blocks = [part.span for part in parts(graph) if part.block]
    lengths = {len(block) for block in blocks}
    if (
        len(blocks) < 2
        or len(lengths) != 1
        or blocks[-1].stop - blocks[0].start != sum(map(len, blocks))
    ):
        return None
    last, length = blocks[-1], len(blocks[-1])
    ops = list(graph.operators[: last.stop])
    for number in range(1, more + 1):
        for place in last:
            op = graph.operators[place]
            ops.append(_moved(op, last.start - length, number * length))
    ops += [_moved(op, last.start, more * length) for op in graph.operators[last.stop :]]
    total, known = graph.parameter_elements, other.parameter_elements
    if total is not None and known is not None:
        total += more * abs(total - known)
    return replace(graph, operators=tuple(ops), parameter_elements=total)


def _moved(op: Operator, first: int, by: int) -> Operator:
    """An operator whose operands from a position on are shifted."""
    return replace(op, inputs=tuple(i + by if i >= first else i for i in op.inputs))


def _lists_of_equal_layers(model: Any) -> Iterator[tuple[Any, str, Any]]:
    """Owner, attribute and module list of every list of many layers that are alike."""
    for module in model.modules():
        for name, child in module.named_children():
            if not isinstance(child, torch.nn.ModuleList) or len(child) < FEWEST_LAYERS:
                continue
            looks = [_look(layer) for layer in child]
            if all(look == looks[0] for look in looks):
                yield module, name, child


def _look(layer: Any) -> list[Any]:
    """Key that is equal for two layers that run the same operators."""
    found: list[Any] = []
    for name, module in layer.named_modules():
        tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        plain = {
            key: value
            for key, value in vars(module).items()
            if key not in _NUMBERS and isinstance(value, _PLAIN)
        }
        found.append(
            (
                name,
                type(module),
                [(key, tuple(t.shape)) for key, t in tensors],
                sorted(plain),
                plain,
            )
        )
    return found
