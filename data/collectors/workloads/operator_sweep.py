"""A grid of single operators, log-spaced over the sizes that networks use."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from forerun.data.collectors.workloads.reference_operators import reference_operators
from forerun.data.collectors.workloads.single_operators import (
    attention,
    batch_norm,
    conv,
    elements,
    embedding,
    linear,
    pool,
    product,
    rows,
    transpose,
)
from forerun.data.graph import Operator

LARGEST = 2**29
"""Most elements of all operands of one operator: 2 GiB in fp32."""
SMALLEST_STEP = 2
ROWS = ("layer_norm", "softmax", "reduce")
FUNCTIONS = ("add", "mul", "relu", "gelu")
FURTHER_LAYERS = (
    *((512, 2048), (1024, 4096), (1600, 6400), (2048, 2048), (2048, 8192), (3072, 8192)),
    *((3072, 768), (4096, 1024), (14336, 4096), (768, 2304), (4096, 6144), (8192, 8192)),
    *((768, 50304), (2048, 32000)),
)
"""Input and output widths of linear layers in transformers: perceptrons, heads, vocabularies."""
STAGES = ((64, 56), (128, 28), (256, 14), (512, 7))
"""Channels and side of images in networks of four stages."""


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
    return _within(largest, (*reference_operators(), *_grid(step)))


def dense_sweep(step: int = 2, largest: int = LARGEST) -> tuple[Operator, ...]:
    """The sweep with more layers, kernels, functions and rows, for fast devices.

    Args:
        step: factor from one size to the next.
        largest: elements of operands, results and weights together, at most.

    Raises:
        ValueError: the step is below 2.
    """
    return _within(largest, (*operator_sweep(step, largest), *_further(step)))


def _within(largest: int, operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Distinct operators that are no larger than a limit."""
    found = {op.name: op for op in operators}
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
            yield from (rows(kind, count, width) for kind in ROWS)
    for count in spaced(2**12, 2**27, step * 2):
        yield from (elements(function, count) for function in FUNCTIONS)
    for count in spaced(64, 65536, step * 2):
        yield from (embedding(count, entries, 1024) for entries in (4096, 131072))
    for side in spaced(128, 8192, step):
        yield transpose(side, side)
    for batch in spaced(1, 256, step * 4):
        yield pool(batch, 64, 112, 3, 2)
        yield from (batch_norm(batch, width, side) for width, side in STAGES)


def _further(step: int) -> Iterator[Operator]:
    for k, n in FURTHER_LAYERS:
        yield from (linear(count, k, n) for count in spaced(1, 16384, step))
    for batch in spaced(1, 256, step):
        yield conv(batch, 3, 768, 224, 16, stride=16)
        for width, side in STAGES:
            yield conv(batch, 4 * width, width, side, 1)
            yield from (conv(batch, width, width, side, k, groups=width) for k in (5, 7))
    for length in spaced(128, 8192, step):
        for batch, heads, width in ((1, 32, 128), (8, 25, 64), (32, 16, 64)):
            yield attention(batch, heads, length, width)
    for width in spaced(256, 8192, step):
        for count in spaced(64, 65536, step):
            yield from (rows(kind, count, width) for kind in ROWS)
    for count in spaced(2**12, 2**27, step):
        yield from (elements(f, count) for f in (*FUNCTIONS, "sigmoid", "tanh", "silu", "exp"))


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
    for batch in spaced(1, 256, step):
        yield conv(batch, 3, 64, 224, 7, stride=2)
        for width, side in STAGES:
            yield conv(batch, width, width, side, 3)
            yield conv(batch, width, 4 * width, side, 1)
            yield conv(batch, width, 2 * width, side, 3, stride=2)
            yield conv(batch, width, width, side, 3, groups=width)
            yield conv(batch, width, width, side, 3, groups=width // 32)
