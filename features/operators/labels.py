"""Labels of operators for readers: the name with shapes, and what a training step adds to it."""

from collections.abc import Sequence

from forerun.data.graph import Attribute, Operator, Shape
from forerun.data.workload import (
    Kernel,
    Network,
    OperatorWorkload,
    has_optimizer,
    operator_graph,
)
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE

OPTIMIZER_STEP = "optimizer step"
LOSS = "loss and its gradient"
DEQUANTIZATION = "conversion of quantised weights"
EMBEDDING_GRADIENTS = "gradients of the embeddings"


def operator_label(op: Operator) -> str:
    """The operator's name, its window, and its shapes at the batch size of the graph.

    Operators with equal labels are alike for a reader, such as the equal layers of a network.
    """
    operands = ", ".join(map(_shape, op.input_shapes[:2]))
    results = _shape(op.output_shapes[0]) if op.output_shapes else ""
    shapes = f" {operands} -> {results}" if operands and results else f" {operands or results}"
    window = f" kernel {_window(op.attributes['kernel'])}," if "kernel" in op.attributes else ""
    return f"{op.name or op.kind}{window}{shapes}".rstrip(" ,")


def workload_labels(workload: OperatorWorkload) -> list[str]:
    """A label for each row of `query_table(workload)`, in its order."""
    ops = operator_graph(workload).operators
    labels = [operator_label(op) for op in ops]
    if isinstance(workload, Kernel) or not _adds_backward(workload):
        return labels
    gemm = [bool(IS_GEMM[KIND_CODE.get(op.kind, KIND_CODE["unknown"])]) for op in ops]
    products = [label for label, own in zip(labels, gemm, strict=True) if own]
    others = [label for label, own in zip(labels, gemm, strict=True) if not own]
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
