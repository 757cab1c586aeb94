"""Operators from the `ops` table of torch_op_energy, parsed from module representations."""

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil, prod
from typing import Any

from forerun.data.graph import Attribute, Operator, Shape
from forerun.data.lazy import pd

_ACTIVATIONS = {
    name: "clamp" if name == "ReLU6" else name.lower()
    for name in "ReLU ReLU6 SiLU GELU Sigmoid Hardswish Hardsigmoid Tanh".split()
}


def torch_op_energy_kernels(ops: "pd.DataFrame") -> list[Operator | None]:
    """One operator per row of the `ops` table, in order.

    Args:
        ops: columns `layer` (the module's representation) and `input_shape`.

    Returns:
        None where no kind describes the module (`StochasticDepth`, which was timed with its random
        mask) or its representation cannot be parsed.

    Raises:
        KeyError: a column is missing.
    """
    rows = zip(ops["layer"].astype(str), ops["input_shape"].astype(str), strict=True)
    return [module_kernel(layer, shape) for layer, shape in rows]


@lru_cache(maxsize=1 << 13)
def module_kernel(layer: str, input_shape: str) -> Operator | None:
    """The operator of a module such as `Linear(in_features=8, out_features=4, bias=True)`.

    Args:
        layer: representation of a torch module.
        input_shape: its input's shape, such as `(32, 8)`.
    """
    try:
        call = ast.parse(layer.replace("mode=row", "mode='row'"), mode="eval").body
        shape: Shape = tuple(ast.literal_eval(input_shape))
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        positional = [ast.literal_eval(a) for a in call.args]
        named = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
    except (SyntaxError, ValueError):
        return None
    if call.func.id in _ACTIVATIONS:
        function = _ACTIVATIONS[call.func.id]
        attributes = {"function": function}
        return Operator("elementwise", f"aten.{function}", (shape,), (shape,), 0, attributes)
    make = _MODULES.get(call.func.id)
    return None if make is None else make(shape, positional, named)


def _conv(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    c_in, c_out = positional
    kernel, stride = _pair(named["kernel_size"]), _pair(named.get("stride", 1))
    padding, dilation = _pair(named.get("padding", 0)), _pair(named.get("dilation", 1))
    groups = int(named.get("groups", 1))
    out = _windows(shape[2:], kernel, stride, padding, dilation)
    weights = c_out * (c_in // groups) * prod(kernel) + (c_out if named.get("bias", True) else 0)
    attributes: dict[str, Attribute] = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "groups": groups,
    }
    target = (shape[0], c_out, *out)
    return Operator("conv", "aten.convolution", (shape,), (target,), weights, attributes)


def _linear(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    k, n = int(named["in_features"]), int(named["out_features"])
    weights = k * n + (n if named.get("bias", True) else 0)
    return Operator("linear", "aten.addmm", (shape,), ((*shape[:-1], n),), weights)


def _batch_norm(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    return Operator("batch_norm", "aten.native_batch_norm", (shape,), (shape,), 4 * positional[0])


def _layer_norm(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    width = prod(positional[0])
    attributes = {"width": width}
    return Operator(
        "layer_norm", "aten.native_layer_norm", (shape,), (shape,), 2 * width, attributes
    )


def _pool(name: str, shape: Shape, named: dict[str, Any]) -> Operator:
    kernel = _pair(named["kernel_size"])
    stride = _pair(named.get("stride") or kernel)
    padding, dilation = _pair(named.get("padding", 0)), _pair(named.get("dilation", 1))
    rounded = bool(named.get("ceil_mode", False))
    out = _windows(shape[2:], kernel, stride, padding, dilation, rounded=rounded)
    attributes = {"kernel": kernel, "stride": stride, "padding": padding}
    return Operator("pool", name, (shape,), ((*shape[:2], *out),), 0, attributes)


def _max_pool(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    return _pool("aten.max_pool2d", shape, named)


def _avg_pool(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    return _pool("aten.avg_pool2d", shape, named)


def _adaptive_pool(shape: Shape, positional: list[Any], named: dict[str, Any]) -> Operator:
    size = _pair(named["output_size"])
    if size == (1, 1):
        # As in torch: the mean over both dimensions.
        width = prod(shape[2:])
        target = (*shape[:2], 1, 1)
        return Operator("reduce", "aten.mean", (shape,), (target,), 0, {"width": width})
    return Operator("pool", "aten._adaptive_avg_pool2d", (shape,), ((*shape[:2], *size),))


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, tuple) else (value, value)


def _windows(
    size: Shape,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    *,
    rounded: bool = False,
) -> Shape:
    """Positions of a sliding window along each dimension; `rounded` up, as with `ceil_mode`."""
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        steps = ceil(span / s) if rounded else span // s
        # A window may start in the left padding, but not beyond the input in the right one.
        out.append(steps + 1 if not rounded or steps * s < n + p else steps)
    return tuple(out)


_MODULES: Mapping[str, Callable[[Shape, list[Any], dict[str, Any]], Operator]] = {
    "Conv2d": _conv,
    "Linear": _linear,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _layer_norm,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _avg_pool,
    "AdaptiveAvgPool2d": _adaptive_pool,
}
