"""Scaled-dot-product attention: one kernel, or product, softmax and product."""

from math import prod

from forerun.features.lowering.casts import FULL, Types
from forerun.features.lowering.kernel_kinds import (
    KERNEL_CODE,
    attention_kind,
    batched_product_kind,
    row_kind,
)
from forerun.features.lowering.kernels import Launch, launch
from forerun.features.lowering.mode import LoweringMode
from forerun.features.lowering.nodes import Nodes

_FUSED_RANK = 4
_STEPS = 2


class Attention:
    """One attention of a graph, with its sizes.

    Attributes:
        groups: batch times heads.
        queries, keys, head, value: lengths and widths.
        bias: number of elements that are added to the scores.
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
    """Whether it runs as one kernel; torch fuses operands of at most four dimensions."""
    rank = max((len(s) for s in nodes.ops[i].input_shapes), default=0)
    if mode.benchmark_table:
        # The tables hold the flattened product, but copies of its operands still show their rank.
        # A copied constant, such as a table of relative positions, is not an operand.
        near = (*nodes.sources[i], *nodes.readers[i])
        around = [j for j in near if nodes.name[j] == "clone" and nodes.batched[j]]
        rank = max([rank, *(len(nodes.shape(j)) for j in around if _alone(nodes, i, j))])
    return mode.fused_attention and rank <= _FUSED_RANK


def swallowed(nodes: Nodes, i: int, mode: LoweringMode) -> set[int]:
    """Scales and copies of operands that a benchmark's table lists but that are never launched.

    The tables hold decomposed attention. A fused kernel scales its operands and reads them with
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
    one = Attention(nodes, i)
    return _fused(one, types) if is_fused(nodes, i, mode) else _apart(one, mode, types)


def _fused(one: Attention, types: Types) -> list[Launch]:
    """One kernel; in fp32 and TF32 it uses no matrix units, as rows of torch_gpu show."""
    kernel = Launch(
        KERNEL_CODE[attention_kind(one.head, one.keys, one.bias > 0)],
        work=one.work,
        traffic=(one.operands + one.written + one.bias) * types.half,
        m=one.groups * one.queries,
        n=one.head,
        k=one.keys,
        groups=one.groups,
        tensor=types.half < FULL,
        repeat=one.repeat,
    )
    return [kernel]


def _apart(one: Attention, mode: LoweringMode, types: Types) -> list[Launch]:
    """Scale, product, bias, softmax, product, with the casts that autocast puts between them.

    Autocast lists scaled-dot-product attention as one operator and is off inside it: in versions of
    torch with the operator nothing is cast between its steps.
    """
    wide = mode.fp32_scores and mode.casts != "fp32"
    autocast = types.autocast and not mode.fused_attention
    element = FULL if wide else types.half
    query, key = (one.groups * n * one.head for n in (one.queries, one.keys))
    scaled = query + key if mode.fused_attention else query
    rows = [launch("elementwise", 2.0 * scaled * element, repeat=one.repeat)]
    rows.append(_product(one, element, one.queries, one.keys, one.head, query + key + one.scores))
    scores = element
    if one.bias:
        biased = FULL if autocast else element
        traffic = one.scores * (scores + biased) + one.bias * biased
        rows.append(launch("elementwise", traffic, repeat=one.repeat))
        scores = biased
    if autocast and scores < FULL:
        rows.append(launch("cast", one.scores * (scores + FULL), repeat=one.repeat))
        scores = FULL
    traffic = 2.0 * one.scores * scores
    softmax = "fused_softmax" if mode.compiled else row_kind("softmax", one.keys)
    kernel = launch(softmax, traffic, repeat=one.repeat)
    rows.append(kernel._replace(m=one.groups * one.queries, k=one.keys))
    values = one.groups * one.keys * one.value
    if autocast and not wide and not mode.compiled:
        traffic = one.scores * (FULL + types.half) + 2.0 * values * types.half
        rows.append(launch("cast", traffic, repeat=one.repeat))
    moved = one.scores + values + one.written
    rows.append(_product(one, element, one.queries, one.value, one.keys, moved))
    return rows


def _product(one: Attention, element: float, m: float, n: float, k: float, moved: float) -> Launch:
    wide = element == FULL
    name = "bmm_fp32" if wide else batched_product_kind(m, n, k)
    return Launch(
        KERNEL_CODE[name],
        work=2.0 * one.groups * m * n * k,
        traffic=moved * element,
        m=one.groups * m,
        n=n,
        k=k,
        groups=one.groups,
        tensor=not wide,
        repeat=one.repeat,
    )


def _alone(nodes: Nodes, i: int, j: int) -> bool:
    return nodes.only(j) if j in nodes.sources[i] else nodes.sources[j] == [i]
