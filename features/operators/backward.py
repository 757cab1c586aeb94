"""A training step's operators from forward ones: forward, backward and the optimizer step.

Rules follow what autograd launches: a matrix product gives two of the same FLOPs (gradients of the
first operand, and of the weight or second operand), any other operator gives one that also reads
the tensors saved by forward, and the optimizer reads and writes every weight with its state once.
"""

from dataclasses import replace

import numpy as np

from forerun.data.graph import Operator
from forerun.data.shapes import Float64
from forerun.features.operators.kinds import IS_GEMM
from forerun.features.operators.table import OperatorTable

ADAM_READS = 4
"""Tensors that Adam reads per weight: weight, gradient and two moments."""
ADAM_WRITES = 3


def training_table(forward: OperatorTable, *, updates: bool = True) -> OperatorTable:
    """Operators of one training step.

    Args:
        forward: operators of the forward pass, already at the step's batch size.
        updates: whether an optimizer updates the weights.

    Returns:
        The forward operators, their backward ones, and one optimizer step over all parameters.
    """
    gemm = forward.take(IS_GEMM[forward.kind])
    other = forward.take(~IS_GEMM[forward.kind])
    parts = [forward, _gradient_of_first(gemm), _gradient_of_second(gemm), _gradient(other)]
    parameters = int(forward.parameter_elements.sum())
    if parameters and updates:
        parts.append(_optimizer_step(parameters))
    return OperatorTable.concatenate(parts)


def _first_elements(gemm: OperatorTable) -> Float64[np.ndarray, " n"]:
    second = gemm.in_elements - gemm.batch * gemm.m * gemm.k
    two = (gemm.operands > 1) & (second > 0)
    return np.where(two, gemm.in_elements - second, gemm.in_elements)


def _gradient_of_first(gemm: OperatorTable) -> OperatorTable:
    first = _first_elements(gemm)
    return replace(
        gemm,
        in_elements=gemm.out_elements + gemm.in_elements - first,
        out_elements=first,
        n=gemm.k,
        k=gemm.n,
    )


def _gradient_of_second(gemm: OperatorTable) -> OperatorTable:
    first = _first_elements(gemm)
    second = gemm.in_elements - first + gemm.parameter_elements
    return replace(
        gemm,
        in_elements=first + gemm.out_elements,
        out_elements=second,
        parameter_elements=np.zeros(len(gemm)),
        m=gemm.k,
        k=gemm.m,
        steps=np.zeros(len(gemm)),
    )


def _gradient(other: OperatorTable) -> OperatorTable:
    return replace(
        other,
        in_elements=other.in_elements + other.out_elements,
        out_elements=other.in_elements,
        operands=other.operands + 1.0,
    )


def _optimizer_step(parameters: int) -> OperatorTable:
    weights = (parameters,)
    step = Operator(
        "elementwise",
        "optimizer_step",
        input_shapes=(weights,) * ADAM_READS,
        output_shapes=(weights,) * ADAM_WRITES,
        batched=False,
    )
    return OperatorTable.of([step])
