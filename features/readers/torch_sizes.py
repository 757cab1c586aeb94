"""Sizes in an exported torch program, of which some depend on the data, as plain numbers.

How many boxes a suppression keeps, or how many elements a mask selects, is not known before the
run. The most that the operator's input allows is taken.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from forerun.features.readers.strides import Meta

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
