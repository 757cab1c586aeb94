"""Memory layout of tensors: which can be viewed in another shape without a copy."""

from dataclasses import dataclass
from math import prod

from forerun.data.graph import Shape


@dataclass(frozen=True, slots=True)
class Meta:
    """A tensor's metadata in a traced program.

    Attributes:
        shape: its sizes.
        strides: its strides in elements; None where not known.
        dtype: any value that is equal for equal types.
        floating: whether it holds floating-point numbers.
    """

    shape: Shape
    strides: Shape | None = None
    dtype: object = None
    floating: bool = True


def is_viewable(meta: Meta, shape: Shape) -> bool:
    """Whether a tensor can be viewed in another shape without a copy, as `Tensor.view` decides.

    Args:
        meta: shape and strides of the tensor; without strides it is taken as contiguous.
        shape: the new shape, of as many elements.
    """
    if meta.strides is None or prod(meta.shape) <= 1 or prod(shape) != prod(meta.shape):
        return True
    runs = _runs(meta)
    sizes = [d for d in reversed(shape) if d != 1]
    for length in runs:
        filled = 1
        while sizes and filled < length:
            filled *= sizes.pop(0)
        if filled != length:
            return False
    return True


def _runs(meta: Meta) -> list[int]:
    """Lengths of the stretches with uniform strides, innermost first."""
    runs: list[int] = []
    expected: int | None = None
    for size, stride in zip(reversed(meta.shape), reversed(meta.strides or ()), strict=True):
        if size == 1:
            continue
        if expected is not None and stride == expected:
            runs[-1] *= size
        else:
            runs.append(size)
        expected = stride * size
    return runs
