"""The table of operator kinds, and the classes that predictors group them by."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from forerun.data.shapes import Float64

View = Literal["gemm", "rows", "none"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One canonical operator kind.

    Attributes:
        name: value of `Operator.kind`.
        op_class: the class whose predictor and share it belongs to, one of `OPERATOR_CLASSES`.
        view: view of its shape: `gemm` (batch, m, n, k), `rows` (rows, width) or `none`.
        flops_per_element: FLOPs per output element where `view` is not `gemm`.
    """

    name: str
    op_class: str
    view: View
    flops_per_element: float = 0.0


KINDS: tuple[Kind, ...] = (
    Kind("conv", "conv", "gemm"),
    Kind("conv_transpose", "conv", "gemm"),
    Kind("linear", "linear", "gemm"),
    Kind("matmul", "bmm", "gemm"),
    Kind("attention", "attention", "gemm"),
    Kind("elementwise", "elementwise", "none", 1.0),
    Kind("softmax", "softmax", "rows", 5.0),
    Kind("layer_norm", "norm", "rows", 8.0),
    Kind("group_norm", "norm", "rows", 8.0),
    Kind("batch_norm", "norm", "none", 2.0),
    Kind("reduce", "reduce", "rows", 1.0),
    Kind("pool", "pool", "none", 1.0),
    Kind("embedding", "copy", "none"),
    Kind("copy", "copy", "none"),
    Kind("resize", "copy", "none", 4.0),
    Kind("recurrent", "recurrent", "gemm"),
    Kind("unknown", "unknown", "none"),
)
"""`reduce` is sums, means and norms over some dimensions; `copy` is data movement that is not a
view: concatenation, padding, materialised transposes, gathers, casts."""

KIND_CODE = {kind.name: code for code, kind in enumerate(KINDS)}

OPERATOR_CLASSES: tuple[str, ...] = (
    "conv",
    "linear",
    "bmm",
    "attention",
    "elementwise",
    "softmax",
    "norm",
    "reduce",
    "pool",
    "copy",
    "recurrent",
    "unknown",
)

IS_GEMM = np.array([kind.view == "gemm" for kind in KINDS])
"""Position in `KINDS` -> whether the kind is a matrix product (or convolution, or attention)."""

CLASS_CODE = {name: code for code, name in enumerate(OPERATOR_CLASSES)}
CLASS_OF_KIND: tuple[int, ...] = tuple(CLASS_CODE[kind.op_class] for kind in KINDS)
"""Position in `KINDS` -> position in `OPERATOR_CLASSES`."""

CLASS_OF_NAME = {kind.name: kind.op_class for kind in KINDS}
"""Name of a kind -> its class."""


def by_class(amounts: Float64[np.ndarray, " classes"]) -> dict[str, float]:
    """Operator class -> amount, without classes whose amount is zero.

    Args:
        amounts: shape (len(OPERATOR_CLASSES),).
    """
    return {OPERATOR_CLASSES[code]: float(amounts[code]) for code in np.flatnonzero(amounts)}
