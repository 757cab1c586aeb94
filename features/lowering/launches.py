"""Kernels of operators launched one by one: products, attention, and data movement.

Scaled-dot-product attention is either one kernel, or product, softmax and product.
"""

from bisect import bisect_right
from math import ceil, prod

from forerun.data.graph import Attribute
from forerun.features.lowering.casts import FULL, Types
from forerun.features.lowering.kernels import (
    GROUP_STEPS,
    KERNEL_CODE,
    LARGEST_WINDOW,
    Launch,
    attention_kind,
    batched_product_kind,
    launch,
    product_kind,
    row_kind,
)
from forerun.features.lowering.mode import LoweringMode
from forerun.features.lowering.nodes import Nodes

_STEM_CHANNELS = 4
_STEM_WIDTH = 64


def product_sizes(nodes: Nodes, i: int) -> tuple[float, float]:
    """Elements of activations and of weights that a product reads."""
    kind = nodes.kind[i]
    if kind == "conv":
        shapes = nodes.ops[i].input_shapes
        weight = nodes.groups[i] * nodes.n[i] * nodes.k[i]
        return (float(prod(shapes[0])) if shapes else 0.0), weight
    if kind == "linear":
        return nodes.m[i] * nodes.k[i], max(nodes.weights[i], nodes.n[i] * nodes.k[i])
    return nodes.read[i], nodes.weights[i]


def product_launch(nodes: Nodes, i: int, element: float) -> Launch:
    """The kernel of a convolution, matrix product or recurrent layer.

    Args:
        nodes: the graph.
        i: position of the product.
        element: bytes per operand element.
    """
    activations, weights = product_sizes(nodes, i)
    m, groups = nodes.m[i], nodes.groups[i]
    name = _name(nodes, i)
    if nodes.kind[i] == "matmul":
        m *= groups
    return Launch(
        KERNEL_CODE[name],
        work=nodes.work[i],
        traffic=(activations + nodes.written[i]) * element,
        fixed_traffic=weights * element,
        m=m,
        n=nodes.n[i],
        k=nodes.k[i],
        groups=groups,
        tensor=not name.startswith("depthwise"),
        order=max(nodes.order_read(i), 0) if nodes.kind[i] == "conv" else 0,
        window=float(prod(_numbers(nodes.ops[i].attributes.get("kernel", 1)))),
        repeat=nodes.ops[i].repeat,
    )


def _name(nodes: Nodes, i: int) -> str:
    m, n, k = nodes.m[i], nodes.n[i], nodes.k[i]
    kind = nodes.kind[i]
    if kind == "recurrent":
        return kind
    if kind == "matmul":
        return batched_product_kind(m, n, k)
    if kind == "linear":
        return product_kind("linear", n, k)
    attributes = nodes.ops[i].attributes
    window, stride = _numbers(attributes.get("kernel", 1)), _numbers(attributes.get("stride", 1))
    size = prod(window)
    stepping = max(stride, default=1) > 1
    if nodes.groups[i] > 1 and k == size:
        edge = min(max(window, default=1), LARGEST_WINDOW)
        return f"depthwise_conv/{edge}/{int(stepping)}"
    if nodes.groups[i] > 1:
        wide = int(max(window, default=1) > 1)
        return f"grouped_conv/{bisect_right(GROUP_STEPS, n)}/{wide}"
    if k <= _STEM_CHANNELS * size:
        return f"stem_conv/{int(window == stride)}/{int(n > _STEM_WIDTH)}"
    if size == 1:
        return product_kind("conv1x1", n, k)
    return product_kind("strided_conv" if stepping else "conv", n, k)


def _numbers(value: Attribute) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    return (int(value),) if isinstance(value, int | float) else (1,)


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
"""Threads per block. PyTorch interpolates with one thread per output pixel, which loops over all
images and channels (`upsample_bilinear2d` for channels first)."""
REDUCING = frozenset({"softmax", "layer_norm", "group_norm", "reduce"})
"""Operator kinds that reduce independent rows."""


def kernel_name(nodes: Nodes, i: int) -> str:
    """Kernel kind of an operator that is not a product."""
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
    """The kernel, preceded by a cast where autocast needs one.

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


_FUSED_RANK = 4
_STEPS = 2


class Attention:
    """One attention operator with its sizes.

    Attributes:
        groups: batch times heads.
        queries, keys, head, value: lengths and widths.
        bias: number of elements added to the scores.
    """

    def __init__(self, nodes: Nodes, i: int) -> None:
        op = nodes.ops[i]
        query, key, value = (op.input_shapes + ((1, 1),) * 3)[:3]
        self.groups = float(prod(query[:-2]))
        self.queries, self.head = float(query[-2]), float(query[-1])
        self.keys, self.value = float(key[-2]), float(value[-1])
        self.operands = float(prod(query) + prod(key) + prod(value))
        self.written = nodes.written[i]
        self.repeat = float(op.repeat)
        scores = (query[-2], key[-2])
        masks = [j for j in nodes.sources[i] if tuple(nodes.shape(j)[-2:]) == scores != query[-2:]]
        self.bias = nodes.weights[i] + sum(nodes.written[j] for j in masks)

    @property
    def scores(self) -> float:
        """Elements of the score matrix."""
        return self.groups * self.queries * self.keys

    @property
    def work(self) -> float:
        """FLOPs of the two products."""
        return 2.0 * self.scores * (self.head + self.value)


def is_fused(nodes: Nodes, i: int, mode: LoweringMode) -> bool:
    """Whether attention runs as one kernel; torch fuses operands of at most four dimensions."""
    rank = max((len(s) for s in nodes.ops[i].input_shapes), default=0)
    if mode.benchmark_table:
        # The tables store flattened products, but copies of the operands still show their rank.
        # A copied constant, such as a table of relative positions, is not an operand.
        near = (*nodes.sources[i], *nodes.readers[i])
        around = [j for j in near if nodes.name[j] == "clone" and nodes.batched[j]]
        rank = max([rank, *(len(nodes.shape(j)) for j in around if _alone(nodes, i, j))])
    return mode.fused_attention and rank <= _FUSED_RANK


def swallowed(nodes: Nodes, i: int, mode: LoweringMode) -> set[int]:
    """Scalings and operand copies that a benchmark's table lists but that are never launched.

    The tables store decomposed attention. A fused kernel scales its operands and reads them with
    strides; torch before 2.0 scales the queries and makes copies.
    """
    if not mode.benchmark_table:
        return set()
    fused = is_fused(nodes, i, mode)
    positions: set[int] = set()
    for start in nodes.sources[i]:
        j = start
        for _ in range(_STEPS):
            scale = nodes.kind[j] == "elementwise" and nodes.function[j] == "mul"
            if not (scale or (fused and nodes.name[j] == "clone")) or not nodes.only(j):
                break
            positions.add(j)
            if not nodes.sources[j]:
                break
            j = nodes.sources[j][0]
    return positions


def attention_launches(nodes: Nodes, i: int, mode: LoweringMode, types: Types) -> list[Launch]:
    """Kernels of one attention."""
    attention = Attention(nodes, i)
    return (
        _fused(attention, types) if is_fused(nodes, i, mode) else _unfused(attention, mode, types)
    )


def _fused(attention: Attention, types: Types) -> list[Launch]:
    """One kernel; in fp32 and TF32 it does not use matrix units, as rows of torch_gpu show."""
    kernel = Launch(
        KERNEL_CODE[attention_kind(attention.head, attention.keys, attention.bias > 0)],
        work=attention.work,
        traffic=(attention.operands + attention.written + attention.bias) * types.half,
        m=attention.groups * attention.queries,
        n=attention.head,
        k=attention.keys,
        groups=attention.groups,
        tensor=types.half < FULL,
        repeat=attention.repeat,
    )
    return [kernel]


def _unfused(attention: Attention, mode: LoweringMode, types: Types) -> list[Launch]:
    """Scale, product, bias, softmax and product, with the casts that autocast inserts.

    Autocast lists scaled-dot-product attention as one operator and is off inside it, so torch
    versions that have the operator do not cast between its steps.
    """
    wide = mode.fp32_scores and mode.casts != "fp32"
    autocast = types.autocast and not mode.fused_attention
    element = FULL if wide else types.half
    query, key = (
        attention.groups * n * attention.head for n in (attention.queries, attention.keys)
    )
    scaled = query + key if mode.fused_attention else query
    rows = [launch("elementwise", 2.0 * scaled * element, repeat=attention.repeat)]
    rows.append(
        _product(
            attention,
            element,
            attention.queries,
            attention.keys,
            attention.head,
            query + key + attention.scores,
        )
    )
    scores = element
    if attention.bias:
        biased = FULL if autocast else element
        traffic = attention.scores * (scores + biased) + attention.bias * biased
        rows.append(launch("elementwise", traffic, repeat=attention.repeat))
        scores = biased
    if autocast and scores < FULL:
        rows.append(launch("cast", attention.scores * (scores + FULL), repeat=attention.repeat))
        scores = FULL
    traffic = 2.0 * attention.scores * scores
    softmax = "fused_softmax" if mode.compiled else row_kind("softmax", attention.keys)
    kernel = launch(softmax, traffic, repeat=attention.repeat)
    rows.append(kernel._replace(m=attention.groups * attention.queries, k=attention.keys))
    values = attention.groups * attention.keys * attention.value
    if autocast and not wide and not mode.compiled:
        traffic = attention.scores * (FULL + types.half) + 2.0 * values * types.half
        rows.append(launch("cast", traffic, repeat=attention.repeat))
    moved = attention.scores + values + attention.written
    rows.append(
        _product(attention, element, attention.queries, attention.value, attention.keys, moved)
    )
    return rows


def _product(
    attention: Attention, element: float, m: float, n: float, k: float, moved: float
) -> Launch:
    wide = element == FULL
    name = "bmm_fp32" if wide else batched_product_kind(m, n, k)
    return Launch(
        KERNEL_CODE[name],
        work=2.0 * attention.groups * m * n * k,
        traffic=moved * element,
        m=attention.groups * m,
        n=n,
        k=k,
        groups=attention.groups,
        tensor=not wide,
        repeat=attention.repeat,
    )


def _alone(nodes: Nodes, i: int, j: int) -> bool:
    return nodes.only(j) if j in nodes.sources[i] else nodes.sources[j] == [i]
