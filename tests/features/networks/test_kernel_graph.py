"""Kernels as a graph: links follow what is read, and joining alike kernels loses nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.software import Software
from forerun.features.lowering import Kernels, lower_linked, lowering_mode
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS
from forerun.features.networks.kernel_graph import HOPS, KernelGraph, kernel_graphs

SHAPE = (1, 16, 8, 8)
CONV = {"kernel": (3, 3), "stride": (1, 1), "groups": 1}


def conv(*inputs: int) -> Operator:
    return Operator("conv", "aten.conv2d", (SHAPE,), (SHAPE,), 16 * 16 * 9, CONV, inputs)


def relu(*inputs: int) -> Operator:
    return Operator("elementwise", "aten.relu", (SHAPE,), (SHAPE,), 0, {"function": "relu"}, inputs)


def linked(ops: list[Operator], runtime: str = "eager") -> tuple[Kernels, np.ndarray]:
    graph = OperatorGraph(tuple(ops), source="torch_export")
    software = Software(version="2.4.0", runtime=runtime)  # type: ignore[arg-type]
    return next(lower_linked(graph, (lowering_mode(graph, "amp", software),)))


def named(kernels: Kernels, edges: np.ndarray) -> set[tuple[str, str]]:
    names = [KERNEL_KINDS[kind].name.partition("/")[0] for kind in kernels.kind]
    return {(names[a], names[b]) for a, b in edges.T}


def test_links_follow_the_tensors_and_casts_lead_into_their_product() -> None:
    kernels, edges = linked([conv(), relu(0), conv(1)])
    found = named(kernels, edges)
    assert found >= {("conv", "relu"), ("relu", "conv"), ("cast_weight", "conv")}
    assert ("conv", "conv") not in found
    assert {reader for writer, reader in found if writer.startswith("cast")} == {"conv"}


def test_a_fused_group_reads_and_writes_once() -> None:
    kernels, edges = linked([conv(), relu(0), relu(1), conv(2)], "compiled")
    found = named(kernels, edges)
    assert ("conv", "fused_elementwise") in found
    assert ("fused_elementwise", "conv") in found
    assert len(np.unique(edges, axis=1).T) == edges.shape[1]
    assert all(a != b for a, b in edges.T)


def test_repeated_blocks_stand_once() -> None:
    ops = [conv()]
    for _ in range(20):
        ops += [relu(len(ops) - 1), conv(len(ops))]
    graph = OperatorGraph(tuple(ops), source="torch_export")
    (found,) = kernel_graphs(graph, [lowering_mode(graph, "amp", Software(version="2.4.0"))])
    assert len(found) < found.count.sum() / 3
    assert found.count.sum() == len(linked(ops)[0])


@given(st.data())
def test_joining_alike_kernels_keeps_every_state(data: st.DataObject) -> None:
    ops: list[Operator] = [conv()]
    for place in range(1, data.draw(st.integers(2, 30))):
        make = data.draw(st.sampled_from((conv, relu)))
        back = data.draw(st.sampled_from((1, 1, 1, 2)))
        ops.append(make(max(0, place - back)))
    kernels, edges = linked(ops, data.draw(st.sampled_from(("eager", "compiled"))))
    joined = KernelGraph.of(kernels, edges)
    own = kernels.work + 3.0 * kernels.traffic + kernels.fixed_traffic
    whole = messages(own, edges, edges[::-1])
    one = joined.kernels
    few = messages(one.work + 3.0 * one.traffic + one.fixed_traffic, joined.before, joined.after)
    expected = np.sort(whole)
    found = np.sort(np.repeat(few, joined.count.astype(int)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_graphs_that_nothing_tells_apart_share_a_fingerprint() -> None:
    one, other = (KernelGraph.of(*linked([conv(), relu(0)])) for _ in range(2))
    larger = KernelGraph.of(*linked([conv(), relu(0), conv(1)]))
    assert one.fingerprint == other.fingerprint != larger.fingerprint
    scaled = replace(one, count=one.count * 2)
    assert scaled.fingerprint != one.fingerprint


@pytest.mark.parametrize("count", [0, 1])
def test_few_operators_make_a_graph_too(count: int) -> None:
    kernels, edges = linked([conv()][:count])
    found = KernelGraph.of(kernels, edges)
    assert found.count.sum() == len(kernels)


def messages(own: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Rounds of a message passing that tells any two multisets of neighbours apart."""
    state = np.log1p(own)
    for _ in range(HOPS):
        received = [
            np.bincount(e[1], weights=np.sin(f * state[e[0]]), minlength=len(state))
            for e, f in ((before, 1.3), (after, 2.1))
        ]
        state = np.tanh(0.1 * state + received[0] + 0.7 * received[1])
    return np.asarray(state)
