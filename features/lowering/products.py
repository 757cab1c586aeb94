"""Kernels of convolutions and matrix products."""

from bisect import bisect_right
from math import prod

from forerun.data.graph import Attribute
from forerun.features.lowering.kernel_kinds import (
    GROUP_STEPS,
    KERNEL_CODE,
    LARGEST_WINDOW,
    batched_product_kind,
    product_kind,
)
from forerun.features.lowering.kernels import Launch
from forerun.features.lowering.nodes import Nodes

_STEM_CHANNELS = 4
_STEM_WIDTH = 64


def product_sizes(nodes: Nodes, i: int) -> tuple[float, float]:
    """Elements of the activations and of the weights that a product reads."""
    kind = nodes.kind[i]
    if kind == "conv":
        shapes = nodes.ops[i].input_shapes
        weight = nodes.groups[i] * nodes.n[i] * nodes.k[i]
        return (float(prod(shapes[0])) if shapes else 0.0), weight
    if kind == "linear":
        return nodes.m[i] * nodes.k[i], max(nodes.weights[i], nodes.n[i] * nodes.k[i])
    return nodes.read[i], nodes.weights[i]


def product_launch(nodes: Nodes, i: int, element: float) -> Launch:
    """The kernel of a convolution, matrix product or recurrent layer.

    Args:
        nodes: the graph.
        i: position of the product.
        element: bytes of one element of its operands.
    """
    activations, weights = product_sizes(nodes, i)
    m, groups = nodes.m[i], nodes.groups[i]
    name = _name(nodes, i)
    if nodes.kind[i] == "matmul":
        m *= groups
    return Launch(
        KERNEL_CODE[name],
        work=nodes.work[i],
        traffic=(activations + nodes.written[i]) * element,
        fixed_traffic=weights * element,
        m=m,
        n=nodes.n[i],
        k=nodes.k[i],
        groups=groups,
        tensor=not name.startswith("depthwise"),
        order=max(nodes.order_read(i), 0) if nodes.kind[i] == "conv" else 0,
        window=float(prod(_numbers(nodes.ops[i].attributes.get("kernel", 1)))),
        repeat=nodes.ops[i].repeat,
    )


def _name(nodes: Nodes, i: int) -> str:
    m, n, k = nodes.m[i], nodes.n[i], nodes.k[i]
    kind = nodes.kind[i]
    if kind == "recurrent":
        return kind
    if kind == "matmul":
        return batched_product_kind(m, n, k)
    if kind == "linear":
        return product_kind("linear", n, k)
    attributes = nodes.ops[i].attributes
    window, stride = _numbers(attributes.get("kernel", 1)), _numbers(attributes.get("stride", 1))
    size = prod(window)
    stepping = max(stride, default=1) > 1
    if nodes.groups[i] > 1 and k == size:
        edge = min(max(window, default=1), LARGEST_WINDOW)
        return f"depthwise_conv/{edge}/{int(stepping)}"
    if nodes.groups[i] > 1:
        wide = int(max(window, default=1) > 1)
        return f"grouped_conv/{bisect_right(GROUP_STEPS, n)}/{wide}"
    if k <= _STEM_CHANNELS * size:
        return f"stem_conv/{int(window == stride)}/{int(n > _STEM_WIDTH)}"
    if size == 1:
        return product_kind("conv1x1", n, k)
    return product_kind("strided_conv" if stepping else "conv", n, k)


def _numbers(value: Attribute) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    return (int(value),) if isinstance(value, int | float) else (1,)
