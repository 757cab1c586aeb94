"""The largest live set equals counting by hand and what torch holds, and grows with the batch."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.memory.liveness import inference_requests
from tests.features.memory.test_training_step import tracker


def op(size, *inputs, batched=True, reads=0):
    shapes = ((reads,),) if reads else ()
    return Operator("elementwise", "x", shapes, ((size,),), inputs=inputs, batched=batched)


class Live:
    """Elements of activations alive, from requests for one byte an element."""

    def __init__(self, graph):
        self._asked = inference_requests(graph, "int8")

    def peak_elements(self, factor):
        return float(self._asked.live(self._asked.sizes(factor)).max(initial=0.0))


def live_set(graph):
    return Live(replace(graph, parameter_elements=0))


def by_hand(graph):
    """Count, for every step, the inputs, tensors still to be read, and its own output."""
    n, peak = len(graph), 0
    fed = {s for one in graph.operators if not one.inputs for s in one.input_shapes}
    for step in range(n):
        alive = sum(s[0] for s in fed)
        for place, one in enumerate(graph.operators[: step + 1]):
            readers = [i for i, other in enumerate(graph.operators) if place in other.inputs]
            last = max(readers) if readers else n - 1
            if last >= step:
                alive += one.output_shapes[0][0]
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


@given(graphs(), st.integers(1, 8))
def test_it_equals_the_graph_drawn_at_that_batch(graph, factor):
    larger = OperatorGraph(
        tuple(
            replace(
                one,
                input_shapes=tuple((s[0] * factor,) for s in one.input_shapes),
                output_shapes=((one.output_shapes[0][0] * factor,),),
            )
            for one in graph.operators
        ),
        batch_size=factor,
    )
    assert live_set(graph).peak_elements(factor) == live_set(larger).peak_elements(1.0)


def test_an_input_that_two_operators_read_is_held_once():
    graph = OperatorGraph((op(10, reads=50), op(10, reads=50), op(10, 0, 1)))
    assert live_set(graph).peak_elements(1.0) == 50 + 30


def test_running_several_times_takes_no_more_memory():
    once = OperatorGraph((op(10, reads=5), op(20, 0)))
    often = OperatorGraph(tuple(replace(one, repeat=12) for one in once.operators))
    assert live_set(once).peak_elements(1.0) == live_set(often).peak_elements(1.0)


def held_by_torch(module, x):
    """Most bytes of activations alive after any operator of a pass without gradients."""
    import torch

    weights = {p.untyped_storage()._cdata for p in module.parameters()}
    with torch.no_grad(), tracker(weights) as track:
        track.keep(x)
        module(x)
    return track.peak


def test_a_sequential_module_holds_what_torch_holds():
    import torch
    from torch import nn

    torch.set_num_threads(1)
    widths = (64, 256, 16, 512, 8)
    module = nn.Sequential(
        *(nn.Linear(k, n, bias=False) for k, n in pairwise(widths)),
    )
    ops = tuple(
        Operator("linear", "fc", ((32, k),), ((32, n),), k * n, inputs=(i - 1,) if i else ())
        for i, (k, n) in enumerate(pairwise(widths))
    )
    live = live_set(OperatorGraph(ops, batch_size=32))
    assert 4 * live.peak_elements(1.0) == held_by_torch(module, torch.zeros(32, 64))
    assert 4 * live.peak_elements(3.0) == held_by_torch(module, torch.zeros(96, 64))


def test_what_the_batch_leaves_alone_is_not_scaled():
    graph = OperatorGraph((op(100, batched=False), op(10, 0)))
    assert live_set(graph).peak_elements(8.0) == 100 + 80
