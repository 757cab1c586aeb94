"""Fuses operators as a compiler does: chains between matrix products become single kernels.

Follows the scheduling of torch's Inductor: pointwise operators, norms, reductions and poolings are
fused where they iterate over the same elements; only results used outside the group are written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from forerun.features.deadline import watched
from forerun.features.lowering.casts import Types
from forerun.features.lowering.kernels import Launch, launch
from forerun.features.lowering.launches import REDUCING
from forerun.features.lowering.nodes import Nodes

_NORMS = ("layer_norm", "group_norm", "batch_norm")
_TRANSCENDENTAL = frozenset({"gelu", "silu", "tanh", "sigmoid"})
_SAME_SPACE = 0.02


class Traffic(NamedTuple):
    """Bytes of one fused kernel: activations read and written, and batch-independent bytes."""

    read: float
    written: float
    fixed: float


def fused_groups(nodes: Nodes, members: Sequence[int]) -> list[list[int]]:
    """Groups of operators, excluding products, that run as one kernel each."""
    fusible = set(members)
    parent = {i: i for i in members}
    space = {i: _iterated(nodes, i) for i in members}
    for i in watched(members):
        for j in nodes.sources[i]:
            if j in fusible and _joins(nodes, space, j, i):
                parent[_root(parent, j)] = _root(parent, i)
    groups: dict[int, list[int]] = {}
    for i in members:
        groups.setdefault(_root(parent, i), []).append(i)
    return list(groups.values())


def group_traffic(
    nodes: Nodes, group: Sequence[int], types: Types, gone: Sequence[bool]
) -> Traffic:
    """Bytes that a group reads from outside and writes for other operators."""
    inside = set(group)
    read = written = fixed = 0.0
    seen: set[int] = set()
    for i in group:
        fixed += nodes.weights[i] * types.weight
        if not nodes.sources[i]:
            read += nodes.read[i] * types.input
        for j in nodes.sources[i]:
            if j in inside or j in seen:
                continue
            seen.add(j)
            elements = min(nodes.written[j], max(nodes.read[i], 1.0))
            size = elements * (types.of[j] or types.half)
            if nodes.batched[j]:
                read += size
            else:
                fixed += size
        outside = [k for k in nodes.readers[i] if k not in inside]
        if outside or not nodes.readers[i]:
            # A result that only products read is written in their precision.
            products = outside and all(nodes.is_product(k) or gone[k] for k in outside)
            written += nodes.written[i] * (types.half if products else types.of[i])
    return Traffic(read, written, fixed)


def fused_launch(nodes: Nodes, group: Sequence[int], traffic: Traffic) -> Launch:
    """The kernel of one group."""
    repeat = max(nodes.ops[i].repeat for i in group)
    name = _name(nodes, group)
    widest = max(
        (i for i in group if nodes.kind[i] in REDUCING), key=nodes.width.__getitem__, default=None
    )
    kernel = launch(name, traffic.read + traffic.written, traffic.fixed, repeat)
    if widest is None:
        return kernel
    return kernel._replace(m=nodes.rows[widest], k=nodes.width[widest])


def _name(nodes: Nodes, group: Sequence[int]) -> str:
    kinds = {nodes.kind[i] for i in group}
    if "group_norm" in kinds:
        return "fused_group_norm"
    if "softmax" in kinds:
        return "fused_softmax"
    if "layer_norm" in kinds or any(nodes.name[i] == "var" for i in group):
        return "fused_norm"
    if "reduce" in kinds:
        return "fused_reduce"
    if kinds & {"pool", "resize"}:
        return "fused_pool"
    if "copy" in kinds:
        return "fused_copy"
    heavy = any(nodes.function[i] in _TRANSCENDENTAL for i in group)
    return "fused_transcendental" if heavy else "fused_elementwise"


def _iterated(nodes: Nodes, i: int) -> float:
    if nodes.kind[i] in ("reduce", "pool"):
        return max(nodes.read[i], nodes.written[i])
    return nodes.read[i] if nodes.kind[i] in _NORMS else nodes.written[i]


def _joins(nodes: Nodes, space: dict[int, float], producer: int, consumer: int) -> bool:
    kind = nodes.kind[producer]
    if kind == "reduce":
        return False
    consumer_space, producer_space = space[consumer], space[producer]
    if abs(consumer_space - producer_space) <= _SAME_SPACE * consumer_space + 2:
        return True
    return producer_space < consumer_space and kind not in ("pool", "softmax", *_NORMS)


def _root(parent: dict[int, int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
