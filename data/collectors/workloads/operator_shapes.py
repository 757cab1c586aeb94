"""Parameters of an operator inferred from its shapes: padding of windows, order of dimensions."""

from typing import Any

from forerun.data.graph import Operator, Shape


class NotRunnable(Exception):
    """An operator that the collectors cannot run."""


def pair(value: Any, count: int) -> tuple[int, ...]:
    """An attribute that may be one number for all dimensions."""
    return tuple(value) if isinstance(value, tuple | list) else (int(value),) * count


def padding_of(op: Operator) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, stride and the symmetric padding that a window's shapes imply.

    Raises:
        NotRunnable: no symmetric padding gives the output.
    """
    source, target = op.input_shapes[0], op.output_shapes[0]
    count = len(source) - 2
    kernel = pair(op.attributes.get("kernel", 1), count)
    stride = pair(op.attributes.get("stride", 1), count)
    sides = list(zip(source[2:], target[2:], kernel, stride, strict=True))
    padding = tuple(max(0, -(-((o - 1) * s + k - i) // 2)) for i, o, k, s in sides)
    made = tuple((i + 2 * p - k) // s + 1 for (i, _, k, s), p in zip(sides, padding, strict=True))
    if made != target[2:]:
        raise NotRunnable(f"no symmetric padding makes {target} of {source}")
    return kernel, stride, padding


def turned(source: Shape, target: Shape) -> tuple[int, ...]:
    """Exchange of the last two dimensions, as which a copy is measured.

    Raises:
        NotRunnable: the output is of another shape.
    """
    order = (*range(len(source) - 2), len(source) - 1, len(source) - 2)
    if len(source) < 2 or tuple(source[axis] for axis in order) != tuple(target):
        raise NotRunnable(f"a copy from {source} to {target} is no transposition")
    return order
