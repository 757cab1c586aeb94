"""Operators made from sizes, for sweeps; their names give kind and size."""

from math import prod

from forerun.data.graph import Operator


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
