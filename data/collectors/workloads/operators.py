"""Single operators made from sizes, whose names give kind and size, and what is measured of them.

Reference operators are those that most networks consist of, at sizes that span common ones: their
times characterise a device, and keep a GPU busy. Sweeps are grids around them, log-spaced over the
sizes that networks use; operators of processors take a core milliseconds. Each is measured alone,
as in the sweeps that predictors of single kernels are trained on (NeuSight, ASPLOS 2025).
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from forerun.data.collectors.runner.trial import Trial
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


def linear(rows: int, k: int, n: int) -> Operator:
    """A linear layer: (rows, k) times weights (k, n)."""
    return Operator("linear", f"linear {rows}x{k} to {n}", ((rows, k),), ((rows, n),), k * n)


def product(batch: int, m: int, k: int, n: int) -> Operator:
    """A batched matrix product: (batch, m, k) times (batch, k, n)."""
    shapes = ((batch, m, k), (batch, k, n))
    return Operator("matmul", f"matmul {batch}x{m}x{k}x{n}", shapes, ((batch, m, n),))


def conv(
    batch: int, inputs: int, outputs: int, side: int, kernel: int, stride: int = 1, groups: int = 1
) -> Operator:
    """A square convolution, padded so that stride alone shrinks the image."""
    name = f"conv{kernel} {batch}x{inputs}x{side}x{side} to {outputs}"
    name += f" by {stride}" if stride > 1 else ""
    return Operator(
        "conv",
        name if groups == 1 else f"{name} in {groups} groups",
        ((batch, inputs, side, side),),
        ((batch, outputs, -(-side // stride), -(-side // stride)),),
        inputs // groups * outputs * kernel * kernel,
        {"kernel": (kernel, kernel), "stride": (stride, stride), "groups": groups},
    )


def attention(batch: int, heads: int, length: int, width: int) -> Operator:
    """Scaled dot-product attention without a mask; `width` is that of one head."""
    shape = (batch, heads, length, width)
    name = f"attention {batch}x{heads}x{length}x{width}"
    how = {"function": "scaled_dot_product_attention"}
    return Operator("attention", name, (shape, shape, shape), (shape,), 0, how)


def rows(kind: str, *shape: int) -> Operator:
    """`softmax`, `layer_norm` or `reduce` over the last dimension."""
    name = f"{kind} {'x'.join(map(str, shape))}"
    weights = 2 * shape[-1] if kind == "layer_norm" else 0
    target = shape[:-1] if kind == "reduce" else shape
    return Operator(kind, name, (shape,), (target,), weights)


def batch_norm(batch: int, width: int, side: int) -> Operator:
    """Normalisation of an image's channels by running means and variances."""
    shape = (batch, width, side, side)
    name = f"batch_norm {'x'.join(map(str, shape))}"
    return Operator("batch_norm", name, (shape,), (shape,), 4 * width)


def pool(batch: int, width: int, side: int, kernel: int, stride: int) -> Operator:
    """Maxima over windows, padded so that stride alone shrinks the image."""
    name = f"pool{kernel} {batch}x{width}x{side}x{side} by {stride}"
    source, target = (batch, width, side, side), (batch, width, *[-(-side // stride)] * 2)
    attributes = {"kernel": (kernel, kernel), "stride": (stride, stride)}
    return Operator("pool", name, (source,), (target,), 0, attributes)


def elements(function: str, count: int) -> Operator:
    """A function of every element; `count` is a multiple of 1,024."""
    shape = (count // 1024, 1024)
    inputs = (shape, shape) if function in ("add", "mul") else (shape,)
    attributes = {"function": function}
    return Operator("elementwise", f"{function} {prod(shape)}", inputs, (shape,), 0, attributes)


def embedding(count: int, entries: int, width: int) -> Operator:
    """An embedding: rows of a table by index."""
    name = f"embedding {count} of {entries}x{width}"
    return Operator("embedding", name, ((count,),), ((count, width),), entries * width)


def transpose(height: int, width: int) -> Operator:
    """A transposed copy."""
    name = f"copy {height}x{width} transposed"
    return Operator("copy", name, ((height, width),), ((width, height),))


def flops(operator: Operator) -> float:
    """FLOPs of an operator of this file, to estimate its time; a multiply-add counts as two."""
    out = float(sum(map(prod, operator.output_shapes)))
    source = operator.input_shapes[0]
    if operator.kind in ("linear", "matmul"):
        return 2.0 * out * source[-1]
    if operator.kind == "conv":
        return 2.0 * out * operator.parameter_elements / operator.output_shapes[0][1]
    if operator.kind == "attention":
        return 4.0 * out * source[-2]
    return 5.0 * max(out, float(prod(source)))


def reference_operators() -> tuple[Operator, ...]:
    """Products, convolutions, rows and elements, small to large; names give kind and size."""
    return (
        *(linear(*sizes) for sizes in ((64, 1024, 1024), (512, 1024, 4096), (4096, 4096, 4096))),
        *(linear(*sizes) for sizes in ((1, 4096, 4096), (16384, 768, 3072))),
        *(product(*sizes) for sizes in ((16, 128, 128, 64), (96, 512, 64, 512))),
        *(product(*sizes) for sizes in ((64, 1024, 1024, 64), (16, 2048, 128, 2048))),
        *(conv(*sizes) for sizes in ((1, 64, 64, 56, 3), (16, 64, 64, 56, 3))),
        *(conv(*sizes) for sizes in ((32, 256, 1024, 14, 1), (32, 512, 512, 7, 3))),
        conv(32, 96, 96, 56, 3, groups=96),
        *(rows("softmax", *shape) for shape in ((96, 512, 512), (16, 2048, 2048))),
        *(rows("layer_norm", *shape) for shape in ((512, 768), (16384, 1024))),
        *(elements(*sizes) for sizes in (("relu", 2**16), ("gelu", 2**22), ("add", 2**25))),
    )


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


def processor_trials(quick: bool = False) -> tuple[Trial, ...]:
    """Trials of the operators in fp32 through onnxruntime; one of each kind in the quick plan."""
    found = quick_operators() if quick else (*quick_operators(), *further_operators())
    return tuple(
        Trial(op, framework="onnxruntime", runtime="onnxruntime", group=op.kind, flops=flops(op))
        for op in {op.name: op for op in found}.values()
    )


def quick_operators() -> tuple[Operator, ...]:
    """One or two operators of each kind."""
    return (
        *(linear(*sizes) for sizes in ((128, 512, 2048), (1, 2048, 2048))),
        product(8, 128, 64, 128),
        *(conv(*sizes) for sizes in ((1, 64, 64, 56, 3), (1, 256, 256, 14, 3))),
        *(conv(*sizes) for sizes in ((1, 64, 256, 28, 1), (1, 3, 32, 224, 3, 2))),
        conv(1, 144, 144, 56, 3, groups=144),
        conv(1, 96, 96, 28, 3, groups=8),
        *(rows(kind, 512, 768) for kind in ("softmax", "layer_norm")),
        *(elements(*sizes) for sizes in (("gelu", 2**18), ("add", 2**20), ("add", 2**24))),
        *(elements(*sizes) for sizes in (("sigmoid", 2**18), ("relu", 2**20))),
        transpose(512, 512),
        pool(1, 64, 112, 3, 2),
    )


def further_operators() -> Iterator[Operator]:
    """A grid of sizes around `quick_operators`."""
    for count in (16, 64, 256, 1024):
        for k, n in ((192, 768), (768, 192), (384, 384), (1024, 1024), (768, 3072)):
            yield linear(count, k, n)
    yield from (linear(1, k, n) for k, n in ((512, 1000), (1280, 1000), (4096, 1024)))
    for batch, m, k, n in (
        (3, 197, 64, 197),
        (12, 64, 64, 64),
        (12, 256, 64, 256),
        (4, 384, 384, 64),
    ):
        yield product(batch, m, k, n)
    for width, side in ((24, 112), (48, 56), (96, 28), (192, 14), (384, 7), (512, 14)):
        yield conv(1, width, width, side, 3)
        yield conv(1, width, 4 * width, side, 1)
        yield conv(1, 4 * width, width, side, 1)
        yield conv(1, width, 2 * width, side, 3, stride=2)
        yield conv(1, 4 * width, 4 * width, side, 3, groups=4 * width)
    for width, side, groups in ((128, 28, 32), (256, 14, 8), (64, 56, 4), (240, 28, 3)):
        yield conv(1, width, width, side, 3, groups=groups)
    yield from (conv(1, width, width, 28, 5, groups=width) for width in (96, 240))
    yield from (conv(1, 3, width, 224, size, 4) for width, size in ((64, 7), (96, 11)))
    for count, width in ((128, 256), (197, 192), (3136, 96), (64, 1024)):
        yield from (rows(kind, count, width) for kind in ("softmax", "layer_norm", "reduce"))
    for count in (2**14, 2**17, 2**22):
        yield from (elements(name, count) for name in ("add", "mul", "relu", "gelu", "sigmoid"))
    yield from (transpose(side, side) for side in (128, 1024, 2048))
    yield from (embedding(128, 8192, width) for width in (256, 1024))
    yield from (pool(1, width, side, 3, 2) for width, side in ((32, 56), (256, 28)))
