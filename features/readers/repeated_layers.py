"""Networks of many equal layers, of which three are traced in place of all.

A list of modules with equal classes, shapes of weights and plain attributes (except their index) is
cut to two and to three. Where the graph of three is that of two with its last block once more, the
graph of all is built by repeating that block; where anything differs, the whole network is traced.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.graphs.blocks import parts

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
    import torch

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
