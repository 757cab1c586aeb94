"""Work of a network on a CPU, as amounts in which time is linear.

Each kind of product has its arithmetic and the elements that it reads and writes, so that its
efficiency drops where a dimension is short; other kinds have the values that they compute. Weights,
and activations that exceed one core's caches, are pooled over all kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.deadline import watched
from forerun.features.processors.lowering import cpu_nodes, owned_nodes
from forerun.features.processors.nodes import CONV_KINDS, NODE_KINDS, CpuNode

PRODUCTS = (*CONV_KINDS, "gemm", "bmm", "attention", "recurrent")
OTHERS = tuple(kind for kind in NODE_KINDS if kind not in PRODUCTS)
NEAR_BYTES = 2.0**20
"""Activations of a node that stay in a core's private cache: 1 to 2 MiB on servers since 2017."""
CACHE_BYTES = 2.0**24
"""Assumed share per core of the last-level cache if unknown."""

SHARED = ("near_weights", "far_weights", "near_bytes", "far_bytes")
FIXED = ("product_node", "other_node", "run", "join")
COLUMNS: tuple[tuple[str, str], ...] = (
    *((kind, term) for kind in PRODUCTS for term in ("flops", "read", "written")),
    *((kind, "values") for kind in OTHERS),
    *(("memory", name) for name in SHARED),
    *(("fixed", name) for name in FIXED),
)
"""(kind, term) of each amount of work."""
_PLACE = {column: place for place, column in enumerate(COLUMNS)}
JOIN = COLUMNS.index(("fixed", "join"))
"""Products, whose threads wait for each other at the end; a single thread does not wait."""
UNITS: Column = np.array(
    [{"flops": 1e-10, "run": 5e-6, "product_node": 2e-6, "other_node": 1e-6, "join": 4e-6}.get(
        term, 2e-10 if kind in PRODUCTS or term == "values" else 5e-11
    ) for kind, term in COLUMNS]
)  # fmt: skip
"""Seconds per unit of each amount on a typical core: 10 GFLOP/s, some GB/s, microseconds per node;
initial values of fits."""


@dataclass(frozen=True)
class Work:
    """Amounts of work in one run.

    Attributes:
        amounts: (columns,) as in `COLUMNS`: FLOPs, elements, bytes, counts.
        nodes: number of nodes.
    """

    amounts: Column
    nodes: float


def work_of(graph: OperatorGraph, factor: float, cache_bytes: float = CACHE_BYTES) -> Work:
    """Work of a graph.

    Args:
        graph: any graph.
        factor: samples over those of the graph's own batch.
        cache_bytes: bytes of the last-level cache available to one run.
    """
    nodes = _nodes(GraphKey(graph))
    far = _far(nodes, cache_bytes)
    amounts = np.zeros(len(COLUMNS))
    count = 0.0
    for node in watched(nodes):
        amounts += node.repeat * _amounts(node, factor if node.scales else 1.0, far, cache_bytes)
        count += node.repeat
    amounts[_PLACE["fixed", "run"]] = 1.0
    return Work(amounts, count)


def work_by_node(
    graph: OperatorGraph, factor: float, cache_bytes: float = CACHE_BYTES
) -> tuple[NDArray[np.float64], tuple[Operator, ...], Column]:
    """The amounts of `work_of` per node, without the fixed amount per run.

    Args:
        graph: any graph.
        factor: samples over those of the graph's own batch.
        cache_bytes: bytes of the last-level cache available to one run.

    Returns:
        (n, columns) amounts of n nodes over all their executions; the operator that each is run
        for; (n,) executions of each in one pass.
    """
    nodes, owners = owned_nodes(graph)
    far = _far(nodes, cache_bytes)
    repeats = np.array([node.repeat for node in nodes], dtype=np.float64)
    each = [_amounts(node, factor if node.scales else 1.0, far, cache_bytes) for node in nodes]
    return np.array(each).reshape(len(nodes), len(COLUMNS)) * repeats[:, None], owners, repeats


def _far(nodes: Sequence[CpuNode], cache_bytes: float) -> float:
    """Share of the weights evicted from the cache between two runs."""
    held = sum(node.weights * node.repeat for node in nodes)
    return held**2 / (held**2 + cache_bytes**2) if held else 0.0


@kept_by_graph()
def _nodes(key: GraphKey) -> tuple[CpuNode, ...]:
    return cpu_nodes(key.graph)


def _amounts(node: CpuNode, factor: float, far: float, cache_bytes: float) -> Column:
    amounts = np.zeros(len(COLUMNS))
    if node.kind in PRODUCTS:
        amounts[_PLACE[node.kind, "flops"]] = factor * node.flops
        amounts[_PLACE[node.kind, "read"]] = factor * node.read / 4
        amounts[_PLACE[node.kind, "written"]] = factor * node.written / 4
    else:
        amounts[_PLACE[node.kind, "values"]] = factor * node.flops
    moved = factor * (node.read + node.written)
    amounts[_PLACE["memory", "near_weights"]] = (1 - far) * node.weights
    amounts[_PLACE["memory", "far_weights"]] = far * node.weights
    amounts[_PLACE["memory", "near_bytes"]] = max(0.0, moved - NEAR_BYTES)
    amounts[_PLACE["memory", "far_bytes"]] = max(0.0, moved - cache_bytes)
    fixed = "product_node" if node.kind in PRODUCTS else "other_node"
    amounts[_PLACE["fixed", fixed]] = 1.0
    amounts[JOIN] = amounts[_PLACE["fixed", "product_node"]]
    return amounts
