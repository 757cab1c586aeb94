"""A grid of single operators, log-spaced over the sizes that networks use."""

from collections.abc import Iterator, Sequence
from math import prod

from forerun.data.collectors.reference_operators import reference_operators
from forerun.data.collectors.single_operators import (
    attention,
    conv,
    elements,
    embedding,
    linear,
    product,
    rows,
    transpose,
)
from forerun.data.graph import Operator

LARGEST = 2**29
"""Elements of all operands of one operator, at most: 2 GiB in fp32."""
SMALLEST_STEP = 2


def operator_sweep(step: int = 4, largest: int = LARGEST) -> tuple[Operator, ...]:
    """The reference operators and a grid around them.

    Args:
        step: factor from one size to the next; 2 is the finest grid, 8 a coarse one.
        largest: elements of operands, results and weights together, at most.

    Raises:
        ValueError: the step is below 2.
    """
    if step < SMALLEST_STEP:
        raise ValueError(f"a sweep steps by a factor of {SMALLEST_STEP} or more, not {step}")
    found = {op.name: op for op in (*reference_operators(), *_grid(step))}
    return tuple(op for op in found.values() if touched(op) <= largest)


def touched(operator: Operator) -> int:
    """Elements of operands, results and weights."""
    shapes = (*operator.input_shapes, *operator.output_shapes)
    return sum(map(prod, shapes)) + operator.parameter_elements


def spaced(low: int, high: int, step: int) -> tuple[int, ...]:
    """Sizes from `low` by factors of `step`, none above `high`, which is the last."""
    sizes = []
    size = low
    while size < high:
        sizes.append(size)
        size *= step
    return (*sizes, high)


def _grid(step: int) -> Iterator[Operator]:
    yield from _products(step)
    yield from _convolutions(step)
    for length in spaced(128, 8192, step):
        for batch, heads, width in ((1, 16, 64), (16, 12, 64), (4, 32, 128)):
            yield attention(batch, heads, length, width)
    for width in spaced(256, 8192, step):
        for count in spaced(64, 65536, step * 4):
            yield from (rows(kind, count, width) for kind in ("layer_norm", "softmax", "reduce"))
    for count in spaced(2**12, 2**27, step * 2):
        yield from (elements(function, count) for function in ("add", "mul", "relu", "gelu"))
    for count in spaced(64, 65536, step * 2):
        yield from (embedding(count, entries, 1024) for entries in (4096, 131072))
    for side in spaced(128, 8192, step):
        yield transpose(side, side)


def _products(step: int) -> Iterator[Operator]:
    layers: Sequence[tuple[int, int]] = ((768, 3072), (1024, 1024), (4096, 4096), (4096, 14336))
    for k, n in layers:
        yield from (linear(count, k, n) for count in spaced(1, 16384, step))
    for side in spaced(64, 8192, step):
        yield linear(side, side, side)
    for batch in spaced(4, 512, step):
        for m, k, n in ((128, 64, 128), (512, 64, 512), (1024, 128, 1024), (256, 256, 256)):
            yield product(batch, m, k, n)
            yield product(batch, m, n, k)


def _convolutions(step: int) -> Iterator[Operator]:
    stages = ((64, 56), (128, 28), (256, 14), (512, 7))
    for batch in spaced(1, 256, step):
        yield conv(batch, 3, 64, 224, 7, stride=2)
        for width, side in stages:
            yield conv(batch, width, width, side, 3)
            yield conv(batch, width, 4 * width, side, 1)
            yield conv(batch, width, 2 * width, side, 3, stride=2)
            yield conv(batch, width, width, side, 3, groups=width)
            yield conv(batch, width, width, side, 3, groups=width // 32)
