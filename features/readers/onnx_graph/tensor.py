"""Tensors of an ONNX graph, and sequences of them, as far as they are known before the run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import onnx

from forerun.data.graph import Shape


class Tensor(NamedTuple):
    """A tensor of the graph as far as it is known.

    Attributes:
        elem_type: ONNX element type, 0 when not known.
        shape: None when not known.
        constant: True when it does not depend on the values of the graph's inputs.
        value: its value as a numpy array where it is small and constant, else None.
        producers: positions of the operators that make it.
        items: the tensors of a sequence; None of a tensor, and where they are not known.
    """

    elem_type: int
    shape: Shape | None
    constant: bool = False
    value: Any = None
    producers: tuple[int, ...] = ()
    items: tuple[Any, ...] | None = None


MOST_ITEMS = 1000
"""Tensors of the longest sequence that is followed."""


def from_sequences(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Tensor | None:
    """What a node makes of or from a sequence, without producers; None where it is not known."""
    fits = node.domain in ("", "ai.onnx") and len(node.output) == 1
    maker = _MAKERS.get(node.op_type) if fits else None
    try:
        return None if maker is None or None in inputs[:2] else maker(node, inputs)
    except (IndexError, ValueError):
        return None


def _list(inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """The tensors of the sequence that a node reads first; raises `ValueError` if not known."""
    if inputs[0] is None or inputs[0].items is None:
        raise ValueError(inputs)
    return list(inputs[0].items)


def _sequence(tensors: Sequence[Tensor | None]) -> Tensor | None:
    known = tuple(t for t in tensors if t is not None)
    fits = len(known) == len(tensors) <= MOST_ITEMS
    return Tensor(0, None, items=known) if fits else None


def _inserted(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Tensor | None:
    items = _list(inputs)
    place = _place(inputs, 2, len(items))
    return _sequence([*items[:place], inputs[1], *items[place:]])


def _erased(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Tensor | None:
    items = _list(inputs)
    del items[_place(inputs, 1, -1)]
    return _sequence(items)


def _taken(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Tensor | None:
    return _list(inputs)[_place(inputs, 1, 0)]


def _place(inputs: Sequence[Tensor | None], position: int, otherwise: int) -> int:
    """The index that an operand holds; raises `ValueError` where it is not known."""
    given = inputs[position] if position < len(inputs) else None
    if given is None:
        return otherwise
    if given.value is None:
        raise ValueError(position)
    return int(given.value.ravel()[0])


def _number(node: onnx.NodeProto, name: str, otherwise: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), otherwise)


def _split(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Tensor | None:
    """The parts of a tensor along an axis: of one size, of given sizes, or one row each."""
    source, split = inputs[0], inputs[1] if len(inputs) > 1 else None
    axis = _number(node, "axis", 0)
    if source is None or source.shape is None or not -len(source.shape) <= axis < len(source.shape):
        return None
    parts = _parts(source.shape[axis], split)
    if parts is None:
        return None
    dims = list(source.shape)
    squeezed = split is None and not _number(node, "keepdims", 1)
    items = []
    for part in parts:
        dims[axis] = part
        kept = [d for place, d in enumerate(dims) if not squeezed or place != axis % len(dims)]
        items.append(source._replace(shape=tuple(kept), value=None))
    return _sequence(items)


def _parts(size: int, split: Tensor | None) -> list[int] | None:
    """Sizes of the parts that a dimension is split into; None where they are not known or many."""
    if split is not None and split.value is None:
        return None
    if split is not None and split.value.ndim:
        parts = [int(part) for part in split.value.ravel()]
        return parts if sum(parts) == size and min(parts) >= 0 else None
    step = 1 if split is None else int(split.value)
    if step <= 0 or size > step * MOST_ITEMS:
        return None
    return [min(step, size - start) for start in range(0, size, step)]


def _joined(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Tensor | None:
    """All tensors of a sequence along an axis, or along a new one."""
    items = _list(inputs)
    shapes = [list(t.shape) for t in items if t.shape is not None]
    if not items or len(shapes) < len(items):
        return None
    axis, made = _number(node, "axis", 0), shapes[0]
    if _number(node, "new_axis", 0):
        axis += (len(made) + 1) * (axis < 0)
        return items[0]._replace(shape=(*made[:axis], len(items), *made[axis:]), value=None)
    made[axis] = sum(shape[axis] for shape in shapes)
    return items[0]._replace(shape=tuple(made), value=None)


_MAKERS: Mapping[str, Callable[[onnx.NodeProto, Sequence[Tensor | None]], Tensor | None]] = {
    "SequenceEmpty": lambda node, inputs: _sequence(inputs),
    "SequenceConstruct": lambda node, inputs: _sequence(inputs),
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SequenceAt": _taken,
    "SplitToSequence": _split,
    "ConcatFromSequence": _joined,
}
