"""What autograd keeps of each operator for the backward pass, as tools/autograd/derivatives.yaml
of PyTorch says."""

from math import prod
from typing import NamedTuple

from forerun.data.graph import Operator

INDEX_BYTES = 8
STATISTIC_BYTES = 4


class Saved(NamedTuple):
    """What an operator keeps.

    Attributes:
        inputs: whether its activation operands are kept.
        output: whether its result is.
        extra_bytes: of tensors made for this purpose alone (statistics, positions).
        through: whether the gradient of the result is, unchanged, that of its operands.
    """

    inputs: bool = False
    output: bool = False
    extra_bytes: int = 0
    through: bool = False


_RESULT = frozenset(
    "relu sigmoid tanh exp expm1 exp2 sqrt rsqrt reciprocal tan threshold leaky_relu".split()
)
_NOTHING = frozenset(
    "add sub neg rsub round floor ceil trunc sign eq ne lt le gt ge isnan isinf logical_and "
    "logical_or logical_not bitwise_not bitwise_and bitwise_or lerp quantize_per_tensor "
    "dequantize_per_tensor".split()
)
_THROUGH = frozenset({"add", "sub", "rsub"})
_PRODUCTS = frozenset({"mul", "div", "atan2", "maximum", "minimum", "fmod", "remainder"})
_COPIES = frozenset(
    "clone contiguous copy reshape flatten unflatten cat stack _to_copy to view_copy".split()
)
_INDEXED = frozenset("index index_select gather embedding topk sort masked_fill where".split())


def saved(op: Operator, plain: bool = False) -> Saved:
    """What one operator keeps in training."""
    name = op.name.rpartition(".")[2]
    out = prod(op.output_shapes[0]) if op.output_shapes else 0
    if op.kind == "elementwise":
        return _elementwise(op, str(op.attributes.get("function", name)))
    if op.kind in ("conv", "conv_transpose", "linear", "matmul", "unknown"):
        return Saved(inputs=True)
    if op.kind == "attention":
        # The flash and memory-efficient kernels keep one log-sum-exp a row of scores.
        rows = prod(op.input_shapes[0][:-1]) if op.input_shapes else 0
        if plain:
            return Saved(inputs=True, extra_bytes=rows * op.input_shapes[1][-2] * 4)
        return Saved(inputs=True, output=True, extra_bytes=rows * STATISTIC_BYTES)
    if op.kind == "softmax":
        return Saved(output=True)
    if op.kind == "batch_norm":
        channels = op.input_shapes[0][1] if len(op.input_shapes[0]) > 1 else 1
        return Saved(inputs=True, extra_bytes=2 * channels * STATISTIC_BYTES)
    if op.kind in ("layer_norm", "group_norm"):
        groups = out // max(1, int(float(str(op.attributes.get("width", 1)))))
        return Saved(inputs=True, extra_bytes=2 * groups * STATISTIC_BYTES)
    if op.kind == "pool":
        positions = out * INDEX_BYTES if "max" in name else 0
        return Saved(inputs=True, extra_bytes=positions)
    if op.kind == "reduce":
        kept = name not in ("sum", "mean", "any", "all", "argmax", "argmin", "cumsum")
        return Saved(inputs=kept, output=name in ("amax", "amin", "norm", "linalg_vector_norm"))
    if op.kind == "recurrent":
        # cuDNN keeps the gates of every step.
        return Saved(inputs=True, output=True, extra_bytes=4 * out * STATISTIC_BYTES)
    return Saved(through=name in _COPIES and len(op.inputs) < 2)


def _elementwise(op: Operator, function: str) -> Saved:
    if function in _RESULT:
        return Saved(output=True)
    if function in _NOTHING:
        return Saved(through=function in _THROUGH)
    if function in _PRODUCTS:
        return Saved(inputs=_operands_kept(op))
    return Saved(inputs=True)


def _operands_kept(op: Operator) -> bool:
    """Whether a product keeps its operands: each is kept for the gradient of the other.

    A product with a number has no other gradient, nor has one with a constant table, such as the
    sines of rotary embeddings; a lone vector is taken for a weight.
    """
    if op.parameter_elements or len(op.inputs) > 1:
        return True
    if len(op.input_shapes) < 2:
        return False
    other = op.input_shapes[1]
    return op.input_shapes[0] == other or prod(other) == max(other, default=1)
