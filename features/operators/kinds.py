"""The table of operator kinds, the classes that predictors group them by, and display labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forerun.data.facts import facts_of
from forerun.data.graph import Attribute, Operator, Shape
from forerun.data.shapes import Float64
from forerun.data.workload import Kernel, Network, OperatorWorkload, has_optimizer, operator_graph

View = Literal["gemm", "rows", "none"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One canonical operator kind.

    Attributes:
        name: value of `Operator.kind`.
        op_class: class for predictors and time shares, one of `OPERATOR_CLASSES`.
        view: view of its shape: `gemm` (batch, m, n, k), `rows` (rows, width) or `none`.
        family: family of kernels that predictors of single kernels share, one of
            `forerun.features.operators.features.FAMILIES`; what only moves data is elementwise.
        activity: class of the power that its kernels draw, one of
            `forerun.features.power.gpu_load.ACTIVITIES`.
        flops_per_element: FLOPs per output element where `view` is not `gemm`.
    """

    name: str
    op_class: str
    view: View
    family: str
    activity: str
    flops_per_element: float = 0.0


KINDS = tuple(Kind(**kind) for kind in facts_of(__file__)["kinds"])

KIND_CODE = {kind.name: code for code, kind in enumerate(KINDS)}

OPERATOR_CLASSES: tuple[str, ...] = tuple(dict.fromkeys(kind.op_class for kind in KINDS))
IS_GEMM = np.array([kind.view == "gemm" for kind in KINDS])
"""Position in `KINDS` -> whether it is a matrix product, convolution or attention."""

CLASS_CODE = {name: code for code, name in enumerate(OPERATOR_CLASSES)}
CLASS_OF_KIND: tuple[int, ...] = tuple(CLASS_CODE[kind.op_class] for kind in KINDS)
"""Position in `KINDS` -> position in `OPERATOR_CLASSES`."""

CLASS_OF_NAME = {kind.name: kind.op_class for kind in KINDS}
"""Name of a kind -> its class."""


def by_class(amounts: Float64[np.ndarray, " classes"]) -> dict[str, float]:
    """Operator class -> amount, omitting zero amounts.

    Args:
        amounts: shape (len(OPERATOR_CLASSES),).
    """
    return {OPERATOR_CLASSES[code]: float(amounts[code]) for code in np.flatnonzero(amounts)}


OPTIMIZER_STEP = "optimizer step"
LOSS = "loss and its gradient"
DEQUANTIZATION = "conversion of quantised weights"
EMBEDDING_GRADIENTS = "gradients of the embeddings"


def operator_label(op: Operator) -> str:
    """The operator's name, window, and shapes at the batch size of the graph.

    Operators that a reader cannot tell apart, such as repeated layers, have equal labels.
    """
    operands = ", ".join(map(_shape, op.input_shapes[:2]))
    results = _shape(op.output_shapes[0]) if op.output_shapes else ""
    shapes = f" {operands} -> {results}" if operands and results else f" {operands or results}"
    window = f" kernel {_window(op.attributes['kernel'])}," if "kernel" in op.attributes else ""
    where = f"{part}: " if (part := op.part) else ""
    return f"{where}{op.name or op.kind}{window}{shapes}".rstrip(" ,")


def workload_labels(workload: OperatorWorkload) -> list[str]:
    """A label for each row of `query_table(workload)`, in its order."""
    ops = operator_graph(workload).operators
    labels = [operator_label(op) for op in ops]
    if isinstance(workload, Kernel) or not _adds_backward(workload):
        return labels
    gemm = [bool(IS_GEMM[KIND_CODE.get(op.kind, KIND_CODE["unknown"])]) for op in ops]
    products = [label for label, is_gemm in zip(labels, gemm, strict=True) if is_gemm]
    others = [label for label, is_gemm in zip(labels, gemm, strict=True) if not is_gemm]
    labels += [f"gradient of the input of {label}" for label in products]
    labels += [f"gradient of the second operand of {label}" for label in products]
    labels += [f"gradient of {label}" for label in others]
    updates = has_optimizer(workload) and any(op.parameter_elements for op in ops)
    return [*labels, OPTIMIZER_STEP] if updates else labels


def _adds_backward(network: Network) -> bool:
    return network.phase == "training" and not network.graph.training


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _window(kernel: Attribute) -> str:
    sides: Sequence[object] = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    return "x".join(map(str, sides))
