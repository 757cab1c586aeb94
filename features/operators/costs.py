"""Device-independent costs of one operator: FLOPs, elements moved, and its GEMM view.

A multiply-add counts as two FLOPs. Traffic is in elements, because a run's precision decides bytes.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

from forerun.data.graph import Operator, Shape
from forerun.features.operators.kinds import KIND_CODE, KINDS


class OperatorCost(NamedTuple):
    """Costs of one execution of one operator; fields that do not apply are zero.

    `batch`, `m`, `n`, `k` describe batch x (m x k times k x n), with convolutions as implicit GEMM
    and one batch entry per group; `rows`, `width` the normalised or reduced rows; `kernel` the
    elements of a convolution's or pooling's window and `stride` its step; `heavy` the arithmetic of
    an elementwise function relative to its traffic; `steps` the sequentially dependent products
    m x k times k x n of a recurrent layer.
    """

    flops: float
    in_elements: float
    out_elements: float
    parameter_elements: float
    batch: float = 0.0
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    rows: float = 0.0
    width: float = 0.0
    kernel: float = 0.0
    stride: float = 0.0
    heavy: float = 0.0
    steps: float = 0.0


HEAVY: Mapping[str, float] = {
    "pow": 2.0,
    **dict.fromkeys("gelu tanh sigmoid silu exp erf log sin cos".split(), 1.0),
    **dict.fromkeys("div sqrt rsqrt".split(), 0.5),
}
"""Function -> arithmetic relative to traffic: transcendental functions are slower than their
traffic on chips with few special-function units."""


GATES: Mapping[str, int] = {"lstm": 4, "gru": 3}
"""Part of a recurrent operator's name -> products of the state per step; 1 for all others."""


def operator_cost(op: Operator) -> OperatorCost:
    """FLOPs, elements and GEMM view of one execution of an operator at its shapes."""
    kind = KINDS[KIND_CODE.get(op.kind, KIND_CODE["unknown"])]
    moved = OperatorCost(
        flops=0.0,
        in_elements=float(sum(map(prod, op.input_shapes))),
        out_elements=float(sum(map(prod, op.output_shapes))),
        parameter_elements=float(op.parameter_elements),
    )
    if kind.view == "gemm":
        return _GEMM[kind.name](op, moved)
    flops = kind.flops_per_element * max(moved.out_elements, _worked_elements(op, moved))
    if kind.view == "rows":
        width = float(_width(op))
        worked = max(moved.in_elements, moved.out_elements)
        return moved._replace(flops=flops, rows=worked / width, width=width)
    if op.kind == "pool":
        return moved._replace(flops=flops, kernel=float(_kernel_elements(op)), stride=_stride(op))
    heavy = HEAVY.get(str(op.attributes.get("function", "")), 0.0)
    return moved._replace(flops=flops, heavy=heavy)


def _worked_elements(op: Operator, moved: OperatorCost) -> float:
    return moved.in_elements if op.kind in ("reduce", "pool") else moved.out_elements


def _width(op: Operator) -> int:
    declared = op.attributes.get("width")
    if isinstance(declared, int) and declared > 0:
        return declared
    shape: Shape = op.input_shapes[0] if op.input_shapes else (1,)
    return max(1, shape[-1] if shape else 1)


def groups_of(op: Operator) -> int:
    """Groups of a convolution; 1 for other operators."""
    groups = op.attributes.get("groups", 1)
    return groups if isinstance(groups, int) and groups > 0 else 1


def _kernel_elements(op: Operator) -> int:
    kernel = op.attributes.get("kernel", (1,))
    return prod(kernel) if isinstance(kernel, tuple) else int(kernel)


def _stride(op: Operator) -> float:
    stride = op.attributes.get("stride", 1)
    return float(max(stride, default=1) if isinstance(stride, tuple) else stride)


def _conv(op: Operator, moved: OperatorCost) -> OperatorCost:
    source, target, groups = op.input_shapes[0], op.output_shapes[0], groups_of(op)
    if op.kind == "conv_transpose":
        source, target = target, source
    m = target[0] * prod(target[2:])
    n = target[1] / groups
    kernel = float(_kernel_elements(op))
    k = source[1] / groups * kernel
    flops = 2.0 * groups * m * n * k
    moved = moved._replace(flops=flops, batch=float(groups), m=float(m), n=n, k=k)
    return moved._replace(kernel=kernel, stride=_stride(op))


def _linear(op: Operator, moved: OperatorCost) -> OperatorCost:
    k, n = op.input_shapes[0][-1], op.output_shapes[0][-1]
    m = moved.out_elements / n if n else 0.0
    return moved._replace(flops=2.0 * m * n * k, batch=1.0, m=m, n=float(n), k=float(k))


def _matmul(op: Operator, moved: OperatorCost) -> OperatorCost:
    k, target = op.input_shapes[0][-1], op.output_shapes[0]
    n = target[-1] if target else 1
    m = target[-2] if len(target) > 1 else 1
    batch = moved.out_elements / (m * n) if m and n else 0.0
    flops = 2.0 * moved.out_elements * k
    return moved._replace(flops=flops, batch=batch, m=float(m), n=float(n), k=float(k))


def _attention(op: Operator, moved: OperatorCost) -> OperatorCost:
    query, key = op.input_shapes[0], op.input_shapes[1]
    value = op.input_shapes[2]
    batch, m, n = float(prod(query[:-2])), float(query[-2]), float(key[-2])
    k, v = float(query[-1]), float(value[-1])
    flops = 2.0 * batch * m * n * (k + v) + 5.0 * batch * m * n
    return moved._replace(flops=flops, batch=batch, m=m, n=n, k=k, rows=batch * m, width=n)


def _recurrent(op: Operator, moved: OperatorCost) -> OperatorCost:
    """Costs of a recurrent layer, whose products with the state depend on each other.

    Each weight is used once per position of batch and sequence. The second operand is the state
    (layers and directions, batch, width), as in torch. Without one, the first operand is (steps,
    batch, width) of one layer as wide as its result.
    """
    source, target = op.input_shapes[0], op.output_shapes[0]
    positions = float(prod(source[:-1]))
    state = op.input_shapes[1] if len(op.input_shapes) > 1 else ()
    if len(state) < 2:
        state = (1, *source[1:-1], target[-1])
    chains, samples, width = (float(n) for n in (state[0], prod(state[1:-1]), state[-1]))
    gates = next((n for cell, n in GATES.items() if cell in op.name.lower()), 1)
    return moved._replace(
        flops=2.0 * moved.parameter_elements * positions,
        batch=1.0,
        m=samples,
        n=gates * width,
        k=width,
        steps=chains * positions / samples,
    )


_GEMM: dict[str, Callable[[Operator, OperatorCost], OperatorCost]] = {
    "conv": _conv,
    "conv_transpose": _conv,
    "linear": _linear,
    "matmul": _matmul,
    "attention": _attention,
    "recurrent": _recurrent,
}
