"""Operators as columns, the input of roofline, features and predictors."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from forerun.data.columns import Columns
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.shapes import Bool, Float64, Int
from forerun.features.deadline import watched
from forerun.features.operators.costs import OperatorCost, operator_cost
from forerun.features.operators.kinds import CLASS_OF_KIND, KIND_CODE

_CLASSES = np.array(CLASS_OF_KIND, dtype=np.intp)


@dataclass(frozen=True)
class OperatorTable(Columns):
    """n operators; `at_batch` scales the batch. In elements, because a run's precision decides
    bytes.

    Attributes:
        kind: positions in `KINDS`.
        flops, in_elements, out_elements, parameter_elements: costs per execution of each operator.
        batch, m, n, k: GEMM view, zero where it does not apply.
        rows, width: row view, zero where it does not apply.
        kernel, stride: window of convolutions and poolings, zero where there is none.
        heavy: arithmetic of an elementwise function relative to its traffic, 0 for most.
        steps: sequentially dependent products of a recurrent layer, 0 for all others.
        repeat: executions per pass.
        batched: False where the operator does not depend on the batch size.
        operands: number of activation inputs.
    """

    kind: Int[np.ndarray, " ops"]
    flops: Float64[np.ndarray, " ops"]
    in_elements: Float64[np.ndarray, " ops"]
    out_elements: Float64[np.ndarray, " ops"]
    parameter_elements: Float64[np.ndarray, " ops"]
    batch: Float64[np.ndarray, " ops"]
    m: Float64[np.ndarray, " ops"]
    n: Float64[np.ndarray, " ops"]
    k: Float64[np.ndarray, " ops"]
    rows: Float64[np.ndarray, " ops"]
    width: Float64[np.ndarray, " ops"]
    kernel: Float64[np.ndarray, " ops"]
    stride: Float64[np.ndarray, " ops"]
    heavy: Float64[np.ndarray, " ops"]
    steps: Float64[np.ndarray, " ops"]
    repeat: Float64[np.ndarray, " ops"]
    batched: Bool[np.ndarray, " ops"]
    operands: Float64[np.ndarray, " ops"]

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def op_class(self) -> Int[np.ndarray, " ops"]:
        """Positions in `OPERATOR_CLASSES`."""
        return np.asarray(_CLASSES[self.kind])

    @classmethod
    def of(cls, operators: Iterable[Operator]) -> "OperatorTable":
        """The table of these operators, in order, at their shapes."""
        ops = list(operators)
        costs = np.array([operator_cost(op) for op in watched(ops)], dtype=np.float64).reshape(
            len(ops), len(OperatorCost._fields)
        )
        columns = dict(zip(OperatorCost._fields, np.ascontiguousarray(costs.T), strict=True))
        return cls(
            kind=np.array(
                [KIND_CODE.get(op.kind, KIND_CODE["unknown"]) for op in ops], dtype=np.intp
            ),
            **columns,
            repeat=np.array([op.repeat for op in ops], dtype=np.float64),
            batched=np.array([op.batched for op in ops], dtype=np.bool_),
            operands=np.array([len(op.input_shapes) for op in ops], dtype=np.float64),
        )

    @classmethod
    def of_graph(cls, graph: OperatorGraph) -> "OperatorTable":
        """The table of a graph at `graph.batch_size`."""
        return cls.of(graph.operators)

    def at_batch(self, factor: float) -> "OperatorTable":
        """The operators with `factor` times as many samples.

        Work and activations grow with the batch, parameters do not; a GEMM grows in rows (`m`),
        a batched GEMM or attention in `batch`. Operators that do not depend on the graph's input
        are unchanged.
        """
        if factor == 1.0:
            return self
        scale = np.where(self.batched, factor, 1.0)
        grows_in_batch = _BATCH_GROWS[self.kind]
        return replace(
            self,
            flops=self.flops * scale,
            in_elements=self.in_elements * scale,
            out_elements=self.out_elements * scale,
            batch=np.where(grows_in_batch, self.batch * scale, self.batch),
            m=np.where(grows_in_batch, self.m, self.m * scale),
            rows=self.rows * scale,
        )


_BATCH_GROWS = np.array([kind in ("matmul", "attention") for kind in KIND_CODE], dtype=np.bool_)
