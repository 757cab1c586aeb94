"""Kernels that move data more than they compute, launched one by one."""

from math import ceil, prod

from forerun.features.lowering.casts import Types
from forerun.features.lowering.kernel_kinds import row_kind
from forerun.features.lowering.kernels import Launch, launch
from forerun.features.lowering.nodes import Nodes

_NAMED_COPIES = {
    "cat": "cat",
    "concat": "cat",
    "clone": "clone",
    "contiguous": "clone",
    "reshape": "clone",
    "roll": "roll",
    "constant_pad_nd": "pad",
    "pad": "pad",
}
_NAMED_FUNCTIONS = ("relu", "gelu", "silu")
_MEANS = frozenset(
    "mean reducemean globalaveragepool adaptive_avg_pool1d adaptive_avg_pool2d".split()
)
_SPREAD = 4.0
_INTERPOLATING = ("bilinear", "bicubic")
_THREADS = 512
"""Threads of a block. PyTorch interpolates with a thread for each pixel of the result, which goes
through all images and channels (`upsample_bilinear2d` for channels first)."""
REDUCING = frozenset({"softmax", "layer_norm", "group_norm", "reduce"})
"""Kinds of operators that reduce rows, which are independent of each other."""


def kernel_name(nodes: Nodes, i: int) -> str:
    """Kind of the kernel of an operator that is not a product."""
    kind, name = nodes.kind[i], nodes.name[i]
    if kind in ("softmax", "layer_norm"):
        return row_kind(kind, nodes.width[i])
    if kind == "reduce":
        return "mean" if name in _MEANS else "reduce"
    if kind == "pool":
        return "max_pool" if "max" in name else "avg_pool" if "av" in name else "pool"
    if kind == "copy":
        return "transpose" if "transpose" in name else _NAMED_COPIES.get(name, "copy")
    if kind in ("group_norm", "batch_norm", "resize"):
        return kind
    if kind != "elementwise":
        return "unknown"
    if nodes.function[i] in _NAMED_FUNCTIONS:
        return nodes.function[i]
    return "gate" if _spreads(nodes, i) else "elementwise"


def pointwise_launches(nodes: Nodes, i: int, types: Types, read: float) -> list[Launch]:
    """One kernel, and the cast before it where autocast needs one.

    Args:
        nodes: the graph.
        i: position of the operator.
        types: bytes per element, known up to and including this operator.
        read: mean bytes per element over its operands.
    """
    elements, repeat = nodes.read[i], nodes.ops[i].repeat
    rows = []
    to = types.cast_before(i, read)
    if to is not None:
        rows.append(launch("cast", elements * (read + to), repeat=repeat))
        read = to
    traffic = elements * read + nodes.written[i] * types.of[i]
    weights = nodes.weights[i] * types.weight
    kernel = launch(kernel_name(nodes, i), traffic, weights, repeat)
    if nodes.kind[i] in REDUCING:
        kernel = kernel._replace(m=nodes.rows[i], k=nodes.width[i])
    elif nodes.kind[i] == "resize" and any(mode in nodes.name[i] for mode in _INTERPOLATING):
        blocks = ceil(prod(nodes.shape(i)[2:]) / _THREADS)
        kernel = kernel._replace(n=blocks, order=nodes.order_read(i))
    rows.append(kernel)
    return rows


def _spreads(nodes: Nodes, i: int) -> bool:
    """Whether one operand is much smaller than the result, as in a gate or a layer scale."""
    sizes = [float(prod(s)) for s in nodes.ops[i].input_shapes]
    if nodes.weights[i]:
        sizes.append(nodes.weights[i])
    return len(sizes) > 1 and nodes.written[i] > _SPREAD * min(sizes)
