"""How long tensors live, and which are kept for the backward pass."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.software import Software
from forerun.data.workload import TrainingSetup
from forerun.features.memory.liveness import EAGER, Execution, Walk, execution, inference_requests
from forerun.features.memory.saved_tensors import (
    FOLDED_ATTENTION,
    Saved,
    kept_operands,
    kept_results,
    saved,
    saved_tensors,
)
from tests.every import for_every

# The largest live set equals counting by hand and what torch holds, and grows with the batch.


def op(size, *inputs, batched=True, reads=0):
    shapes = ((reads,),) if reads else ()
    return Operator("elementwise", "x", shapes, ((size,),), inputs=inputs, batched=batched)


def peak_bytes(graph, precision="int8", factor=1.0):
    """Most bytes alive in a forward pass; one for each element in `int8`."""
    asked = inference_requests(graph, precision)
    return float(asked.live(asked.sizes(factor)).max(initial=0.0))


def test_an_input_that_two_operators_read_is_held_once():
    graph = OperatorGraph((op(10, reads=50), op(10, reads=50), op(10, 0, 1)))
    assert peak_bytes(graph) == 50 + 30


def test_running_several_times_takes_no_more_memory():
    once = OperatorGraph((op(10, reads=5), op(20, 0)))
    often = OperatorGraph(tuple(replace(one, repeat=12) for one in once.operators))
    assert peak_bytes(once) == peak_bytes(often)


def test_what_the_batch_leaves_alone_is_not_scaled():
    graph = OperatorGraph((op(100, batched=False), op(10, 0)))
    assert peak_bytes(graph, factor=8.0) == 100 + 80


# Bytes alive in a forward pass, counted tensor by tensor in each precision.


ITEM = {"fp32": 4, "fp16": 2, "bf16": 2, "amp": 4}


@st.composite
def small_graphs(draw):
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
    """Most bytes alive: while an operator runs, its operands, their casts, its result, and the copy
    of its weights in 16 bits, which autocast does not keep in `torch.inference_mode`.
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
    items, most = [], loaded
    for place, op in enumerate(ops):
        wanted = {"linear": 2, "softmax": 4}.get(op.kind) if auto else None
        casts = 2 * op.parameter_elements if auto and op.kind == "linear" else 0
        for source in op.inputs:
            if wanted is not None and items[source] != wanted:
                casts += wanted * elements[source]
        if wanted is None:
            wanted = max((items[i] for i in op.inputs), default=item)
        items.append(wanted)
        alive = sum(items[i] * elements[i] for i in range(place + 1) if last[i] >= place)
        most = max(most, loaded + casts + alive)
    return most


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "amp"])
@given(graph=small_graphs())
def test_the_peak_is_that_of_counting_every_tensor(precision, graph):
    assert peak_bytes(graph, precision) == counted(graph, precision)


@given(small_graphs(), st.integers(1, 8))
def test_it_equals_the_graph_drawn_at_that_batch(graph, factor):
    def grown(shapes):
        return tuple((rows * factor, width) for rows, width in shapes)

    ops = [
        replace(o, input_shapes=grown(o.input_shapes), output_shapes=grown(o.output_shapes))
        for o in graph.operators
    ]
    larger = OperatorGraph(tuple(ops), batch_size=factor)
    assert peak_bytes(graph, factor=factor) == peak_bytes(larger)


# What autograd saves of single operators, as PyTorch's derivatives say, counted by hand.


SHAPE = (2, 8, 16)
HEADS = (2, 4, 10, 16)


def operator(kind, name="", reads=(SHAPE,), writes=SHAPE, inputs=(), weights=0, **attributes):
    return Operator(kind, name or f"aten.{kind}", reads, (writes,), weights, attributes, inputs)


def function(name, *reads, inputs=()):
    return operator("elementwise", name, reads or (SHAPE,), inputs=inputs, function=name)


@for_every(
    "op, expected",
    [
        (function("relu"), Saved(output=True)),
        (function("gelu"), Saved(inputs=True)),
        (function("add", SHAPE, SHAPE), Saved(through=True)),
        (function("floor"), Saved()),
        (function("mul", SHAPE, SHAPE, inputs=(0, 1)), Saved(inputs=True)),
        (function("mul", SHAPE), Saved()),
        (function("mul", SHAPE, (8, 16)), Saved()),
        (function("dropout"), Saved(extra_bytes=2 * 8 * 16)),
        (operator("softmax"), Saved(output=True)),
        (operator("linear"), Saved(inputs=True)),
        (operator("layer_norm", width=16), Saved(inputs=True, extra_bytes=2 * 16 * 4)),
        (operator("batch_norm"), Saved(inputs=True, extra_bytes=2 * 8 * 4)),
        (operator("pool", "aten.max_pool2d"), Saved(inputs=True, extra_bytes=2 * 8 * 16 * 8)),
        (operator("pool", "aten.avg_pool2d"), Saved(inputs=True)),
        (operator("reduce", "aten.mean"), Saved()),
        (operator("reduce", "aten.amax"), Saved(inputs=True, output=True)),
        (operator("reduce", "aten.var"), Saved(inputs=True)),
        (
            operator("attention", reads=(HEADS,) * 3, writes=HEADS),
            Saved(inputs=True, output=True, extra_bytes=2 * 4 * 10 * 4),
        ),
        (
            operator("recurrent"),
            Saved(inputs=True, output=True, extra_bytes=4 * 2 * 8 * 16 * 4),
        ),
        (operator("copy", "aten.clone", inputs=(0,)), Saved(through=True)),
        (operator("copy", "aten.cat", inputs=(0, 1)), Saved()),
        (operator("embedding"), Saved()),
    ],
)
def test_saved_by_one_operator(op, expected):
    """Masks a byte, positions eight, statistics four bytes each."""
    assert saved(op) == expected


def test_operands_are_kept_for_the_gradient_of_what_they_are_multiplied_with():
    layer, product = operator("linear"), function("mul", SHAPE, SHAPE)
    both = [True, True]
    assert kept_operands(layer, [True], trained=True, weighed=True) == [0]
    assert kept_operands(layer, [True], trained=False, weighed=True) == [], "frozen"
    assert kept_operands(product, both, trained=False, weighed=False) == [0, 1]
    assert kept_operands(product, [True, False], trained=False, weighed=False) == [1]
    assert kept_operands(product, [False, True], trained=False, weighed=False) == [0]
    assert kept_operands(function("gelu"), [True], trained=False, weighed=False) == [0]
    scaled = function("mul", SHAPE)
    assert kept_operands(scaled, [True], trained=False, weighed=False) == []
    assert kept_operands(scaled, [True], trained=True, weighed=True) == [0]
    assert kept_operands(product, [True], trained=False, weighed=False) == [0], "a square"


@pytest.mark.parametrize(("kind", "view"), [("attention", True), ("linear", False)])
def test_a_copy_of_what_attention_wrote_allocates_nothing(kind, view):
    source = operator(kind, reads=(HEADS,) * 3, writes=HEADS)
    copied = operator("copy", "aten.clone", (HEADS,), HEADS, (0,))
    assert saved_tensors(OperatorGraph((source, copied)))[1].view == view


def test_dropout_that_is_off_is_a_view():
    graph = OperatorGraph((function("relu"), function("dropout", inputs=(0,))))
    on, off = (saved_tensors(graph, dropout=d)[1] for d in (True, False))
    assert (on.extra_bytes, on.view) == (256, False)
    assert (off.extra_bytes, off.view, off.through) == (0, True, True)


def test_attention_of_five_dimensions_keeps_its_scores():
    """One head more than fused kernels take: 2 x 3 x 4 matrices of 10 x 10 scores of four bytes."""
    five = (2, 3, 4, 10, 16)
    whole = operator("attention", reads=(five,) * 3, writes=five)
    scores = 2 * 3 * 4 * 10 * 10 * 4
    assert saved_tensors(OperatorGraph((whole,)))[0] == Saved(inputs=True, extra_bytes=scores)
    folded = operator("attention", FOLDED_ATTENTION, (five,) * 3, five)
    assert saved_tensors(OperatorGraph((folded,)))[0].extra_bytes == 2 * scores


# What a compiled step keeps: what fused operators start from, and operands of products.


TOKEN_BYTES = 2
COMPILED = Execution(compiled=True)


def gated(width=64, inner=256):
    """A norm, a gated pair of layers, and a residual sum: the second half of a Llama block.

    The first operator stands for the block before.
    """
    row, wide = (1, 8, width), (1, 8, inner)

    def linear(source, before, after):
        return Operator("linear", "l", (before,), (after,), before[-1] * after[-1], {}, (source,))

    def pointwise(function, shape, *sources):
        facts = {"function": function}
        return Operator(
            "elementwise", function, (shape,) * len(sources), (shape,), 0, facts, sources
        )

    operators = (
        Operator("linear", "l", (row,), (row,), width * width),
        Operator("layer_norm", "n", (row,), (row,), 2 * width, {"width": width}, (0,)),
        linear(1, row, wide),
        pointwise("silu", wide, 2),
        linear(1, row, wide),
        pointwise("mul", wide, 3, 4),
        linear(5, wide, row),
        pointwise("add", row, 0, 6),
        pointwise("gelu", row, 7),
    )
    return OperatorGraph(operators)


def kept_bytes(graph, how):
    walk = Walk(graph, "bf16", TrainingSetup("none"), execution=how)
    kept: dict[int, list[int]] = {}
    walk.forward(range(len(walk.graph)), {}, kept, [])
    tensors = {tensor for held in kept.values() for tensor in held}
    return sum(walk.tape.bytes_of(t) for t in tensors)


def test_a_gated_layer_keeps_what_was_counted_by_hand():
    graph, tokens = gated(), 8
    statistics = 2 * tokens * 4
    # The first layer's result, the norm's, two inner results, their gated product, and the residual
    # sum that the last function starts from; the network's input lives anyway.
    compiled = (3 * 64 + 3 * 256) * tokens * TOKEN_BYTES + statistics
    assert kept_bytes(graph, COMPILED) == compiled
    # In eager mode silu's result is kept as well; the sum is what gelu keeps.
    assert kept_bytes(graph, EAGER) == compiled + 256 * tokens * TOKEN_BYTES


@pytest.mark.parametrize("how", [COMPILED, EAGER], ids=["compiled", "eager"])
def test_an_operator_that_repeats_keeps_its_statistics_as_often(how):
    """A mean and a deviation of four bytes for each of 8 tokens, three times in place of once."""
    graph = gated()
    norm = replace(graph.operators[1], repeat=3)
    thrice = replace(graph, operators=(graph.operators[0], norm, *graph.operators[2:]))
    grown = 2 * 8 * 64 * TOKEN_BYTES
    assert kept_bytes(thrice, how) - kept_bytes(graph, how) in (
        2 * 2 * 8 * 4,
        2 * 2 * 8 * 4 + grown,
    )


def test_fused_operators_start_from_products_and_sums():
    graph = gated()
    n = len(graph)
    found = kept_results(graph, saved_tensors(graph), [True] * n, [True] * n)
    assert found == {0, 2, 4, 7}


@pytest.mark.parametrize(
    ("runtime", "compiled"),
    [("eager", False), ("torchscript", False), ("compiled", True), ("reduce-overhead", True)],
)
def test_runtimes_that_fuse_are_compiled(runtime, compiled):
    assert execution(Software(runtime=runtime)) == Execution(compiled)
    assert execution(Software(layout="nhwc")).channels_last
