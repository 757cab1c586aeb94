"""Bytes alive in a forward pass, counted tensor by tensor in each precision."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.memory.liveness import inference_requests

ITEM = {"fp32": 4, "fp16": 2, "bf16": 2, "amp": 4}


@st.composite
def graphs(draw):
    """Up to eight dense layers, pointwise operators and softmaxes on rows of equal width."""
    width, ops = 8, []
    for place in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["linear", "elementwise", "softmax"]))
        many = 1 if kind != "elementwise" else 2
        inputs = ()
        if place:
            inputs = draw(st.lists(st.integers(0, place - 1), min_size=1, max_size=many))
            inputs = tuple(sorted(set(inputs)))
        shape = (draw(st.integers(1, 40)), width)
        read = (((draw(st.integers(1, 40))), width),) if not inputs else ()
        weights = width * width if kind == "linear" else 0
        ops.append(Operator(kind, kind, read, (shape,), weights, inputs=inputs))
    return OperatorGraph(tuple(ops))


def counted(graph, precision):
    """Most bytes alive: while an operator runs, its operands, their casts, its result, and copies
    of weights in 16 bits from all dense layers so far, which autocast keeps to the end.
    """
    ops, item, auto = graph.operators, ITEM[precision], precision == "amp"
    loaded = item * sum(op.parameter_elements for op in ops)
    fed = {s: max(op.input_shapes.count(s) for op in ops) for op in ops for s in op.input_shapes}
    loaded += item * sum(prod(shape) * times for shape, times in fed.items())
    elements = [prod(op.output_shapes[0]) for op in ops]
    last = [
        max((i for i, other in enumerate(ops) if place in other.inputs), default=len(ops))
        for place in range(len(ops))
    ]
    items, copies, most = [], 0, loaded
    for place, op in enumerate(ops):
        wanted = {"linear": 2, "softmax": 4}.get(op.kind) if auto else None
        if auto and op.kind == "linear":
            copies += 2 * op.parameter_elements
        casts = 0
        for source in op.inputs:
            if wanted is not None and items[source] != wanted:
                casts += wanted * elements[source]
        if wanted is None:
            wanted = max((items[i] for i in op.inputs), default=item)
        items.append(wanted)
        alive = sum(items[i] * elements[i] for i in range(place + 1) if last[i] >= place)
        most = max(most, loaded + copies + casts + alive)
    return most


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "amp"])
@given(graph=graphs())
def test_the_peak_is_that_of_counting_every_tensor(precision, graph):
    asked = inference_requests(graph, precision)
    found = float(asked.live(asked.sizes(1.0)).max(initial=0.0))
    assert found == counted(graph, precision)
