"""The largest live set equals counting by hand, and grows with the batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.live_set import live_set


def op(size, *inputs, batched=True, reads=0):
    shapes = ((reads,),) if reads else ()
    return Operator("elementwise", "x", shapes, ((size,),), inputs=inputs, batched=batched)


def by_hand(graph):
    """Count, for every step, tensors written before and still to be read, and its own output."""
    n, peak = len(graph), 0
    for step in range(n):
        alive = 0
        for place, one in enumerate(graph.operators[: step + 1]):
            readers = [i for i, other in enumerate(graph.operators) if place in other.inputs]
            last = max(readers) if readers else n - 1
            if last >= step:
                alive += one.output_shapes[0][0]
        if not graph.operators[step].inputs:
            alive += sum(s[0] for s in graph.operators[step].input_shapes)
        peak = max(peak, alive)
    return peak


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    ops = []
    for place in range(n):
        inputs = draw(st.lists(st.integers(0, place - 1), max_size=3, unique=True)) if place else []
        reads = draw(st.integers(0, 50)) if not inputs else 0
        ops.append(op(draw(st.integers(1, 100)), *inputs, reads=reads))
    return OperatorGraph(tuple(ops))


@given(graphs())
def test_it_equals_counting_by_hand(graph):
    assert live_set(graph).peak_elements(1.0) == by_hand(graph)


@given(graphs(), st.floats(1, 64), st.floats(1, 64))
def test_it_grows_with_the_batch(graph, one, other):
    less, more = sorted((one, other))
    live = live_set(graph)
    assert live.peak_elements(less) <= live.peak_elements(more) + 1e-6


def test_a_chain_holds_two_tensors_at_a_time():
    graph = OperatorGraph((op(10, reads=5), op(20, 0), op(30, 1), op(5, 2)))
    assert live_set(graph).peak_elements(1.0) == 50


def test_a_skip_connection_stays_alive():
    graph = OperatorGraph((op(100), op(10, 0), op(10, 1), op(10, 0, 2)))
    np.testing.assert_array_equal(live_set(graph).batched, [100, 110, 120, 120])


def test_what_the_batch_leaves_alone_is_not_scaled():
    graph = OperatorGraph((op(100, batched=False), op(10, 0)))
    assert live_set(graph).peak_elements(8.0) == 100 + 80
