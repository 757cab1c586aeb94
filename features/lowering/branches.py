"""Finds parallel convolution branches that a network merges before it runs.

Structural reparameterisation (Ding et al. 2021, "RepVGG"): sums of convolutions with their batch
norms over one input become one convolution.
"""

from typing import NamedTuple

from forerun.features.deadline import watched
from forerun.features.lowering.nodes import Nodes


class _Branches(NamedTuple):
    convs: list[tuple[int, int | None]]
    norms: list[int]
    others: list[int]
    origins: set[int]
    bare: bool


def merged_away(nodes: Nodes) -> set[int]:
    """Positions that merging removes; the largest convolution of every sum remains."""
    gone: set[int] = set()
    for root in watched(range(len(nodes))):
        if not _is_sum(nodes, root) or root in gone:
            continue
        if nodes.only(root) and _is_sum(nodes, nodes.readers[root][0]):
            continue
        sums, leaves = _leaves(nodes, root)
        if len(nodes.ops[root].input_shapes) == 2 and nodes.weights[root] > 0:
            continue
        single = any(len(nodes.ops[i].input_shapes) == 1 for i in sums)
        branches = _branches(nodes, leaves)
        if _mergeable(nodes, branches, single):
            gone |= _removed(nodes, branches, root) | set(sums)
    return gone


def _is_sum(nodes: Nodes, i: int) -> bool:
    return nodes.kind[i] == "elementwise" and nodes.function[i] == "add"


def _leaves(nodes: Nodes, root: int) -> tuple[list[int], list[int]]:
    """Positions of the additions in one sum, and of its summands."""
    sums, leaves, todo = [root], [], [root]
    while todo:
        for j in nodes.sources[todo.pop()]:
            if _is_sum(nodes, j) and nodes.only(j):
                sums.append(j)
                todo.append(j)
            else:
                leaves.append(j)
    return sums, leaves


def _branches(nodes: Nodes, leaves: list[int]) -> _Branches:
    convs: list[tuple[int, int | None]] = []
    norms: list[int] = []
    others: list[int] = []
    origins: set[int] = set()
    bare = False
    for j in leaves:
        before = nodes.sources[j]
        if nodes.kind[j] == "batch_norm" and before:
            conv = before[0]
            if nodes.kind[conv] == "conv" and len(nodes.readers[conv]) <= 2:
                convs.append((conv, j))
                origins.add(nodes.sources[conv][0] if nodes.sources[conv] else -1)
            else:
                norms.append(j)
                origins.add(conv)
        elif nodes.kind[j] == "conv" and nodes.only(j) and before and len(leaves) > 1:
            convs.append((j, None))
            origins.add(before[0])
            bare = True
        else:
            others.append(j)
            origins.add(j)
    return _Branches(convs, norms, others, origins, bare)


def _mergeable(nodes: Nodes, branches: _Branches, single: bool) -> bool:
    convs, norms, others, origins, bare = branches
    if len(origins) != 1 or not convs or not (len(convs) >= 2 or norms or single):
        return False
    groups = {nodes.ops[conv].attributes.get("groups", 1) for conv, _ in convs}
    return not (bare and not others) and len(groups) == 1


def _removed(nodes: Nodes, branches: _Branches, root: int) -> set[int]:
    kept = max((conv for conv, _ in branches.convs), key=lambda conv: nodes.work[conv])
    gone = set(branches.norms)
    for conv, norm in branches.convs:
        if conv != kept:
            gone.add(conv)
        if norm is not None:
            gone.add(norm)
    if branches.bare:
        gone.update(i for i in nodes.readers[root] if nodes.kind[i] == "batch_norm")
    return gone
