"""Operators that most networks are made of, at sizes that span what runs: a device is told by them.

Each is measured alone in seconds, without a model at hand; as in the sweeps that predictors of
single kernels are taught with (NeuSight, ASPLOS 2025).
"""

from math import prod

from forerun.data.graph import Operator


def reference_operators() -> tuple[Operator, ...]:
    """Products, convolutions, rows and elements, small to large; their names tell kind and size."""
    return (
        *(_linear(*sizes) for sizes in ((64, 1024, 1024), (512, 1024, 4096), (4096, 4096, 4096))),
        *(_linear(*sizes) for sizes in ((1, 4096, 4096), (16384, 768, 3072))),
        *(_product(*sizes) for sizes in ((16, 128, 128, 64), (96, 512, 64, 512))),
        *(_product(*sizes) for sizes in ((64, 1024, 1024, 64), (16, 2048, 128, 2048))),
        *(_conv(*sizes) for sizes in ((1, 64, 64, 56, 3), (16, 64, 64, 56, 3))),
        *(_conv(*sizes) for sizes in ((32, 256, 1024, 14, 1), (32, 512, 512, 7, 3))),
        _conv(32, 96, 96, 56, 3, groups=96),
        *(_rows("softmax", *shape) for shape in ((96, 512, 512), (16, 2048, 2048))),
        *(_rows("layer_norm", *shape) for shape in ((512, 768), (16384, 1024))),
        *(_elements(*sizes) for sizes in (("relu", 2**16), ("gelu", 2**22), ("add", 2**25))),
    )


def _linear(rows: int, k: int, n: int) -> Operator:
    return Operator("linear", f"linear {rows}x{k} to {n}", ((rows, k),), ((rows, n),), k * n)


def _product(batch: int, m: int, k: int, n: int) -> Operator:
    shapes = ((batch, m, k), (batch, k, n))
    return Operator("matmul", f"matmul {batch}x{m}x{k}x{n}", shapes, ((batch, m, n),))


def _conv(
    batch: int, inputs: int, outputs: int, side: int, kernel: int, groups: int = 1
) -> Operator:
    name = f"conv{kernel} {batch}x{inputs}x{side}x{side} to {outputs}"
    return Operator(
        "conv",
        name if groups == 1 else f"{name} in {groups} groups",
        ((batch, inputs, side, side),),
        ((batch, outputs, side, side),),
        inputs // groups * outputs * kernel * kernel,
        {"kernel": (kernel, kernel), "stride": (1, 1), "groups": groups},
    )


def _rows(kind: str, *shape: int) -> Operator:
    name = f"{kind} {'x'.join(map(str, shape))}"
    weights = 2 * shape[-1] if kind == "layer_norm" else 0
    return Operator(kind, name, (shape,), (shape,), weights)


def _elements(function: str, count: int) -> Operator:
    shape = (count // 1024, 1024)
    inputs = (shape, shape) if function == "add" else (shape,)
    attributes = {"function": function}
    return Operator("elementwise", f"{function} {prod(shape)}", inputs, (shape,), 0, attributes)
