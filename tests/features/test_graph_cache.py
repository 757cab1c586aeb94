"""Caches of results by graph: bounded by operators, so that large graphs do not fill the memory."""

import gc
import weakref
from itertools import pairwise
from pathlib import Path

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import GraphKey, kept_by_graph


def chain(length: int, width: int = 8) -> OperatorGraph:
    shape = ((1, width),)
    first = Operator("elementwise", "x", shape, shape)
    rest = [Operator("elementwise", "x", shape, shape, inputs=(i,)) for i in range(length - 1)]
    return OperatorGraph((first, *rest))


def test_results_are_dropped_by_the_operators_of_their_graphs() -> None:
    calls: list[tuple[int, str]] = []

    @kept_by_graph(10)
    def length_of(key: GraphKey, note: str) -> int:
        calls.append((len(key.graph), note))
        return len(key.graph)

    small, large = GraphKey(chain(3)), GraphKey(chain(8))
    assert [length_of(small, "a"), length_of(small, "b"), length_of(small, "a")] == [3, 3, 3]
    assert calls == [(3, "a"), (3, "b")]
    assert length_of(large, "a") == 8
    assert length_of(large, "a") == 8
    assert length_of(small, "a") == 3
    assert calls == [(3, "a"), (3, "b"), (8, "a"), (3, "a")]


def test_equal_graphs_share_a_result_and_none_is_a_result() -> None:
    calls = []

    @kept_by_graph()
    def nothing(key: GraphKey) -> None:
        calls.append(key)

    nothing(GraphKey(chain(2)))
    nothing(GraphKey(chain(2)))
    assert len(calls) == 1


def test_graphs_that_no_result_is_kept_of_are_freed() -> None:
    @kept_by_graph(100)
    def length_of(key: GraphKey) -> int:
        return len(key.graph)

    graphs = [chain(40, width) for width in range(1, 12)]
    freed = [weakref.ref(graph) for graph in graphs]
    assert [length_of(GraphKey(graph)) for graph in graphs] == [40] * 11
    graphs.clear()
    gc.collect()
    assert sum(ref() is not None for ref in freed) == 2


def test_no_cache_counts_graphs_of_whatever_size() -> None:
    """`lru_cache` counts entries; a graph may have 30,000 operators. Eight runs are few enough."""
    counted = [
        f"{file.name}: {line}"
        for folder in ("features", "models")
        for file in sorted(Path(folder).rglob("*.py"))
        for before, line in pairwise(file.read_text().splitlines())
        if "lru_cache" in before and "GraphKey" in line and "RUNS_KEPT" not in before
    ]
    assert not counted
