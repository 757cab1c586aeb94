"""What autograd saves of single operators, as PyTorch's derivatives say, counted by hand."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.memory.saved_tensors import (
    FOLDED_ATTENTION,
    Saved,
    kept_operands,
    saved,
    saved_tensors,
)
from tests.every import for_every

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
