"""Tracks element types along a graph: operators that autocast runs in half precision or in fp32.

Follows torch.amp's operator lists ("CUDA Ops that can autocast to float16 / to float32"), and
torch's type promotion where fp32 parameters meet half-precision activations.
"""

from collections.abc import Sequence

from forerun.features.lowering.mode import LoweringMode
from forerun.features.lowering.nodes import Nodes

FULL, HALF = 4.0, 2.0
_FP32_FUNCTIONS = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p pow reciprocal rsqrt sinh softplus "
    "tan".split()
)
_FP32_REDUCTIONS = frozenset(
    "sum linalg_vector_norm norm cumsum prod cumprod logsumexp reducesum reducel2 reduceprod "
    "reducelogsumexp".split()
)
_NORMS = ("layer_norm", "group_norm")
_NOT_HALF = 2.01
_NOT_FULL = 3.9


class Types:
    """Bytes per element of every operator's result, filled in order.

    Args:
        nodes: the graph.
        mode: the lowering mode, which determines the types.
    """

    def __init__(self, nodes: Nodes, mode: LoweringMode) -> None:
        self._nodes, self._mode = nodes, mode
        self.half = FULL if mode.casts == "fp32" else HALF
        self.weight = HALF if mode.casts == "half" else FULL
        self.input = HALF if mode.casts == "half" else FULL
        self.of: list[float] = [0.0] * len(nodes)

    @property
    def autocast(self) -> bool:
        """Whether weights are fp32 and products run in half precision."""
        return self._mode.casts == "autocast"

    def read(self, i: int) -> float:
        """Mean bytes per element over an operator's operands."""
        total = elements = 0.0
        for j in self._nodes.sources[i]:
            total += self._nodes.written[j] * self.of[j]
            elements += self._nodes.written[j]
        return total / elements if elements else self.weight

    def widest(self, sources: Sequence[int]) -> float:
        """Bytes per element of the widest operand."""
        return max((self.of[j] for j in sources if self._nodes.written[j] > 0), default=self.weight)

    def pass_through(self, i: int) -> None:
        """Mark an operator that is not launched: its result keeps its operand's type."""
        self.of[i] = max((self.of[j] for j in self._nodes.sources[i]), default=self.weight)

    def set_product(self, i: int) -> None:
        """Set a product's result type: half precision unless everything is in fp32."""
        self.of[i] = self.half

    def set_other(self, i: int, read: float) -> None:
        """Set the result type of an operator that is not a product."""
        nodes = self._nodes
        kind, widest = nodes.kind[i], self.widest(nodes.sources[i])
        if not self.autocast or self.half_norm(i):
            self.of[i] = self.half
        elif self.in_fp32(i):
            self.of[i] = FULL
        elif kind == "batch_norm":
            self.of[i] = read if read in (HALF, FULL) else widest
        elif nodes.weights[i] > 0 and kind != "copy":
            self.of[i] = FULL
        else:
            self.of[i] = widest

    def half_norm(self, i: int) -> bool:
        """Whether the operator is a norm in half precision under autocast (`--fast-norm`)."""
        return self._mode.benchmark_table and self._nodes.kind[i] in _NORMS

    def in_fp32(self, i: int) -> bool:
        """Whether autocast computes the operator in fp32."""
        kind = self._nodes.kind[i]
        if kind == "reduce":
            return self._nodes.name[i] in _FP32_REDUCTIONS
        if kind == "elementwise":
            return self._nodes.function[i] in _FP32_FUNCTIONS
        return kind == "softmax" or kind in _NORMS

    def cast_before(self, i: int, read: float) -> float | None:
        """Bytes per element to which autocast first casts an operand; None without a cast."""
        if not self.autocast:
            return None
        if self.half_norm(i):
            return self.half if read > _NOT_HALF else None
        return FULL if self.in_fp32(i) and read < _NOT_FULL else None

    @staticmethod
    def wider_than_half(read: float) -> bool:
        """Whether a product has to cast operands of this width."""
        return read > _NOT_HALF
