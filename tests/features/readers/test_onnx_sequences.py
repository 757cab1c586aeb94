"""Sequences of tensors in ONNX files cost what the same network costs without them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from forerun.data.errors import UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph

node = helper.make_node


def whole(name, number):
    return numpy_helper.from_array(np.asarray(number), name)


def read(nodes, weights=(), shape=("N", 6, 8)):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], list(weights))
    opset = [helper.make_opsetid("", 17)]
    return read_graph(helper.make_model(graph, opset_imports=opset).SerializeToString())


def middle(first, second):
    """Two parts, each through a function, and their names."""
    return [node("Relu", [first], ["a"]), node("Exp", [second], ["b"])]


def test_parts_of_a_sequence_cost_as_much_as_those_of_a_split():
    given = [whole("sizes", [2, 4]), whole("zero", 0), whole("one", 1)]
    listed = read(
        [
            node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
            node("SequenceAt", ["s", "zero"], ["p"]),
            node("SequenceAt", ["s", "one"], ["q"]),
            *middle("p", "q"),
            node("SequenceEmpty", [], ["none"]),
            node("SequenceInsert", ["none", "b"], ["single"]),
            node("SequenceInsert", ["single", "a", "zero"], ["both"]),
            node("ConcatFromSequence", ["both"], ["y"], axis=1),
        ],
        given,
    )
    plain = read(
        [
            node("Split", ["x", "sizes"], ["p", "q"], axis=1),
            *middle("p", "q"),
            node("Concat", ["a", "b"], ["y"], axis=1),
        ],
        given,
    )
    assert not listed.unknown
    assert [op.kind for op in listed.operators] == [op.kind for op in plain.operators]
    assert [op.inputs for op in listed.operators] == [op.inputs for op in plain.operators]
    ours, theirs = OperatorTable.of_graph(listed), OperatorTable.of_graph(plain)
    np.testing.assert_array_equal(ours.in_elements, theirs.in_elements)
    np.testing.assert_array_equal(ours.out_elements, theirs.out_elements)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [({"axis": 0}, (18, 6, 8)), ({"axis": -1, "new_axis": 1}, (9, 6, 8, 2))],
)
def test_a_sequence_is_joined_along_an_axis_or_a_new_one(attributes, shape):
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("SequenceConstruct", ["a", "x", "x"], ["three"]),
        node("SequenceErase", ["three", "one"], ["two"]),
        node("SequenceLength", ["two"], ["count"]),
        node("ConcatFromSequence", ["two"], ["z"], **attributes),
        node("Neg", ["z"], ["y"]),
    ]
    graph = read(nodes, [whole("one", 1)], shape=(9, 6, 8))
    assert graph.operators[-1].output_shapes == (shape,)
    assert not graph.unknown


@pytest.mark.parametrize(
    ("split", "keepdims", "shapes"),
    [
        (whole("split", 4), 1, [(5, 4, 8), (5, 2, 8)]),
        (None, 0, [(5, 8)] * 6),
        (None, 1, [(5, 1, 8)] * 6),
    ],
)
def test_a_tensor_is_split_into_equal_parts_or_rows(split, keepdims, shapes):
    names = ["x"] if split is None else ["x", "split"]
    parts = node("SplitToSequence", names, ["s"], axis=1, keepdims=keepdims)
    nodes = [parts, node("SequenceAt", ["s", "last"], ["z"]), node("Neg", ["z"], ["y"])]
    weights = [whole("last", -1)] + ([] if split is None else [split])
    graph = read(nodes, weights, shape=(5, 6, 8))
    assert graph.operators[0].output_shapes == tuple(shapes)
    assert graph.operators[-1].output_shapes == (shapes[-1],)


def test_a_loop_that_collects_its_results_in_a_sequence_is_followed():
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Relu", ["x"], ["r"]),
            node("SequenceInsert", ["s", "r"], ["s2"]),
            node("Identity", ["c"], ["c2"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            helper.make_empty_tensor_value_info("s"),
        ],
        [value("c2", TensorProto.BOOL, []), helper.make_empty_tensor_value_info("s2")],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["m", "", "none"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=1),
    ]
    graph = read(nodes, [whole("m", 3)])
    assert [op.name for op in graph.operators] == ["Relu"] * 3 + ["ConcatFromSequence"]
    assert graph.operators[-1].output_shapes == ((1, 18, 8),)


def test_a_refusal_says_at_which_sizes_shapes_do_not_follow():
    weight = numpy_helper.from_array(np.ones((4, 1, 512), np.float32), "w")
    nodes = [node("Conv", ["x", "w"], ["z"]), node("Relu", ["z"], ["y"])]
    with pytest.raises(UnreadableModel, match=r"from 'Conv' on with x\[2\]=128; give the shapes"):
        read(nodes, [weight], shape=("N", 1, "samples"))


def test_a_file_of_views_is_refused_because_nothing_in_it_takes_time():
    with pytest.raises(UnreadableModel, match="no operator in it takes time"):
        read([node("Flatten", ["x"], ["y"])])
