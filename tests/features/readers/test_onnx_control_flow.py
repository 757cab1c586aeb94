"""Control flow and sequences of ONNX graphs."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from forerun.data.errors import ModelTooLarge, UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph

# `If` and `Loop`: what they run is in the graph as often as it runs, or one unknown operator.


FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def value(name, elem_type, shape):
    return helper.make_tensor_value_info(name, elem_type, shape)


def constant(name, number):
    return numpy_helper.from_array(np.asarray(number), name)


def read(nodes, weights=(), **options):
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", FLOAT, ["N", 8])],
        [helper.make_empty_tensor_value_info("y")],
        list(weights),
    )
    opset = [helper.make_opsetid("", 17)]
    return read_graph(helper.make_model(graph, opset_imports=opset).SerializeToString(), **options)


def body(nodes, condition, carried, results, weights=()):
    """The body of a loop with these names of what it hands on and of what it makes."""
    names = helper.make_empty_tensor_value_info
    return helper.make_graph(
        nodes,
        "body",
        [value("i", INT64, []), value("c", BOOL, []), *map(names, carried)],
        [names(condition), *map(names, results)],
        list(weights),
    )


WHILE_TRUE = [node("Identity", ["c"], ["c2"])]


def test_a_loop_that_runs_a_known_number_of_times_repeats_its_body():
    inner = body([*WHILE_TRUE, node("Relu", ["v"], ["v2"])], "c2", ["v"], ["v2"])
    loop = node("Loop", ["m", "", "x"], ["y"], body=inner)
    graph = read([loop], [constant("m", np.int64(7))], batch_size=3)
    (relu,) = graph.operators
    assert (relu.kind, relu.repeat, relu.output_shapes) == ("elementwise", 7, ((3, 8),))
    assert not graph.unknown


def test_what_every_run_makes_is_stacked():
    inner = body([*WHILE_TRUE, node("Relu", ["v"], ["v2"])], "c2", ["v"], ["v2", "v2"])
    loop = node("Loop", ["m", "", "x"], ["last", "all"], body=inner)
    graph = read([loop, node("Exp", ["all"], ["y"])], [constant("m", np.int64(5))])
    assert graph.operators[-1].input_shapes == ((5, 1, 8),)


def test_a_body_whose_tensors_grow_is_unrolled():
    inner = body([*WHILE_TRUE, node("Concat", ["v", "v"], ["v2"], axis=1)], "c2", ["v"], ["v2"])
    loop = node("Loop", ["m", "", "x"], ["y"], body=inner)
    graph = read([loop], [constant("m", np.int64(3))])
    assert [op.output_shapes[0][1] for op in graph.operators] == [16, 32, 64]


def test_a_loop_that_ends_by_its_own_counter_is_counted():
    """As exporters write `while k < 6`, without a number of runs."""
    steps = [
        node("Add", ["k", "one"], ["k2"]),
        node("Less", ["k2", "six"], ["c2"]),
        node("Relu", ["v"], ["v2"]),
    ]
    ends = [constant("one", np.int64(1)), constant("six", np.int64(6))]
    inner = body(steps, "c2", ["k", "v"], ["k2", "v2"], ends)
    loop = node("Loop", ["", "true", "zero", "x"], ["last", "y"], body=inner)
    graph = read([loop], [constant("true", np.bool_(True)), constant("zero", np.int64(0))])
    assert [(op.name, op.repeat) for op in graph.operators] == [("Relu", 6)]


@pytest.mark.parametrize("runs", [0, -1])
def test_a_loop_that_never_runs_hands_on_what_it_got(runs):
    inner = body([*WHILE_TRUE, node("Relu", ["v"], ["v2"])], "c2", ["v"], ["v2"])
    loop = node("Loop", ["m", "", "x"], ["z"], body=inner)
    graph = read([loop, node("Exp", ["z"], ["y"])], [constant("m", np.int64(runs))])
    assert [op.name for op in graph.operators] == ["Exp"]


@pytest.mark.parametrize("most", ["", "m"])
def test_a_loop_that_ends_by_its_data_is_unknown(most):
    steps = [
        node("ReduceSum", ["v"], ["s"], keepdims=0),
        node("Cast", ["s"], ["c2"], to=BOOL),
        node("Relu", ["v"], ["v2"]),
    ]
    inner = body(steps, "c2", ["v"], ["v2"])
    loop = node("Loop", [most, "true", "x"], ["z"], body=inner)
    weights = [constant("true", np.bool_(True)), constant("m", np.int64(9))]
    graph = read([node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["y"]), loop], weights)
    assert graph.unknown == {"Loop": 1}


def test_an_endless_loop_is_unknown():
    inner = body([*WHILE_TRUE, node("Relu", ["v"], ["v2"])], "c2", ["v"], ["v2"])
    loop = node("Loop", ["", "true", "x"], ["z"], body=inner)
    graph = read([node("Exp", ["x"], ["y"]), loop], [constant("true", np.bool_(True))])
    assert graph.unknown == {"Loop": 1}


def test_loops_within_loops_multiply():
    deep = body([*WHILE_TRUE, node("Relu", ["w"], ["w2"])], "c2", ["w"], ["w2"])
    steps = [
        node("Identity", ["c"], ["d2"]),
        node("Loop", ["three", "", "v"], ["v2"], body=deep),
    ]
    inner = body(steps, "d2", ["v"], ["v2"])
    loop = node("Loop", ["two", "", "x"], ["y"], body=inner)
    graph = read([loop], [constant("two", np.int64(2)), constant("three", np.int64(3))])
    assert [op.repeat for op in graph.operators] == [6]


def branches():
    """One operator, or two."""
    small = [node("Relu", ["x"], ["made"])]
    large = [node("Exp", ["x"], ["e"]), node("Log", ["e"], ["made"])]
    result = [helper.make_empty_tensor_value_info("made")]
    return {
        "then_branch": helper.make_graph(small, "then", [], result),
        "else_branch": helper.make_graph(large, "else", [], result),
    }


def test_of_an_unknown_condition_the_larger_branch_is_taken_and_the_graph_says_so():
    steps = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Cast", ["s"], ["c"], to=BOOL),
        node("If", ["c"], ["y"], name="gate", **branches()),
    ]
    graph = read(steps)
    assert [op.name for op in graph.operators][-2:] == ["Exp", "Log"]
    (sentence,) = graph.assumptions
    assert "branch of If 'gate'" in sentence
    assert not graph.unknown


def test_of_many_unknown_conditions_the_graph_names_the_first_and_counts_the_others():
    names = ["x", *(f"t{number}" for number in range(19)), "y"]
    nodes = []
    for number in range(20):
        bodies = {}
        for name, count in (("then_branch", 1), ("else_branch", 2)):
            made = [names[number], *(f"{name}{number}_{step}" for step in range(count))]
            inner = [node("Relu", [made[k]], [made[k + 1]]) for k in range(count)]
            result = helper.make_empty_tensor_value_info(made[-1])
            bodies[name] = helper.make_graph(inner, name, [], [result])
        nodes.append(node("If", ["c"], [names[number + 1]], name=f"gate{number}", **bodies))
    condition = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["c"], to=BOOL),
    ]
    graph = read([*condition, *nodes])
    (sentence,) = graph.assumptions
    assert "branch of If 'gate0' and 19 others runs" in sentence


def test_loops_that_take_too_long_to_follow_are_refused(monkeypatch):
    monkeypatch.setattr("forerun.features.readers.onnx.MAX_INFERRED", 20)
    grows = node("Concat", ["v", "v"], ["v2"], axis=1)
    inner = body([*WHILE_TRUE, grows, node("Relu", ["v2"], ["v3"])], "c2", ["v"], ["v3"])
    loop = node("Loop", ["m", "", "x"], ["y"], body=inner)
    assert len(read([loop], [constant("m", np.int64(4))])) == 8
    with pytest.raises(ModelTooLarge, match="over 20 steps to follow"):
        read([loop], [constant("m", np.int64(12))])


def test_a_merged_decoder_reads_a_prompt_without_a_cache():
    """Its input `use_cache_branch` is false, because the past is empty."""
    graph = helper.make_graph(
        [node("If", ["use_cache_branch"], ["y"], **branches())],
        "g",
        [value("x", FLOAT, [1, 8]), value("use_cache_branch", BOOL, [1])],
        [helper.make_empty_tensor_value_info("y")],
    )
    read_one = read_graph(helper.make_model(graph).SerializeToString())
    assert [op.name for op in read_one.operators] == ["Exp", "Log"]
    assert read_one.assumptions == ()


WIDE = np.zeros((8, 8), np.float32)
"""A weight of 64 elements."""


def inner_graph(weight_name, inputs, outputs):
    names = helper.make_empty_tensor_value_info
    return helper.make_graph(
        [node("MatMul", ["x", weight_name], outputs)],
        "inner",
        [names(name) for name in inputs],
        [names(name) for name in outputs],
        [constant(weight_name, WIDE)],
    )


def test_weights_of_a_loop_that_is_not_followed_are_counted():
    """Its trip count is an input; the same body, followed, has as many weights."""
    inner = body(
        [*WHILE_TRUE, node("MatMul", ["v", "w"], ["v2"])],
        "c2",
        ["v"],
        ["v2"],
        [constant("w", WIDE)],
    )
    unknown = node("Loop", ["n", "", "x"], ["y"], body=inner)
    graph = helper.make_graph(
        [node("Relu", ["x"], ["z"]), unknown],
        "g",
        [value("x", FLOAT, ["N", 8]), value("n", INT64, [])],
        [helper.make_empty_tensor_value_info("y")],
    )
    opset = [helper.make_opsetid("", 17)]
    found = read_graph(helper.make_model(graph, opset_imports=opset).SerializeToString())
    assert dict(found.unknown) == {"Loop": 1}
    assert found.parameter_elements == 64
    followed = read([node("Loop", ["m", "", "x"], ["y"], body=inner)], [constant("m", np.int64(7))])
    assert not followed.unknown
    assert followed.parameter_elements == 64


def test_a_body_that_is_not_followed_loads_the_weights_that_it_reads_outside():
    inner = body([*WHILE_TRUE, node("MatMul", ["v", "w"], ["v2"])], "c2", ["v"], ["v2"])
    nodes = [
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Cast", ["top"], ["n"], to=INT64),
        node("Loop", ["n", "", "x"], ["y"], body=inner),
    ]
    assert read(nodes, [constant("w", WIDE)]).parameter_elements == 64


def test_both_branches_are_loaded():
    branches = {
        "then_branch": inner_graph("a", [], ["t"]), "else_branch": inner_graph("b", [], ["e"])
    }  # fmt: skip
    nodes = [
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Cast", ["top"], ["c"], to=BOOL),
        node("If", ["c"], ["y"], **branches),
    ]
    assert read(nodes).parameter_elements == 128


def test_weights_of_a_scan_and_of_attributes_of_other_domains_are_counted():
    scan = node("Scan", ["x"], ["y"], body=inner_graph("w", ["v"], ["v2"]), num_scan_inputs=1)
    scan.attribute[0].g.node[0].input[0] = "v"
    assert read([scan]).parameter_elements == 64
    custom = node("Mine", ["x"], ["y"], domain="my.domain", packed=constant("", WIDE))
    relu = node("Relu", ["x"], ["z"])
    assert read([relu, custom]).parameter_elements == 64


def test_weights_of_the_onnx_packages_own_models_are_counted_to_the_element():
    """Models whose weights are stored, without index tensors; what no node reads counts as well."""
    from math import prod
    from pathlib import Path

    import onnx

    def stored(graph):
        yield from graph.initializer
        for one in graph.node:
            for attribute in one.attribute:
                if attribute.HasField("g"):
                    yield from stored(attribute.g)

    checked = 0
    for file in sorted((Path(onnx.__file__).parent / "backend/test/data").rglob("*.onnx")):
        if file.parent.name == "light":
            continue  # They make their weights by ConstantOfShape.
        tensors = list(stored(onnx.load(file, load_external_data=False).graph))
        floats = [t for t in tensors if t.data_type in (FLOAT, 10, 11, 16) and len(t.dims)]
        sizes = [prod(t.dims) for t in floats if tuple(t.dims) != (1,)]
        if sizes:
            checked += 1
            assert read_graph(file).parameter_elements == sum(sizes), file.name
    assert checked > 30


# Sequences of tensors in ONNX files cost what the same network costs without them.


def whole(name, number):
    return numpy_helper.from_array(np.asarray(number), name)


def read_sequences(nodes, weights=(), shape=("N", 6, 8)):
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
    listed = read_sequences(
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
    plain = read_sequences(
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
    graph = read_sequences(nodes, [whole("one", 1)], shape=(9, 6, 8))
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
    graph = read_sequences(nodes, weights, shape=(5, 6, 8))
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
    graph = read_sequences(nodes, [whole("m", 3)])
    assert [op.name for op in graph.operators] == ["Relu"] * 3 + ["ConcatFromSequence"]
    assert graph.operators[-1].output_shapes == ((1, 18, 8),)


def test_a_refusal_says_at_which_sizes_shapes_do_not_follow():
    weight = numpy_helper.from_array(np.ones((4, 1, 512), np.float32), "w")
    nodes = [node("Conv", ["x", "w"], ["z"]), node("Relu", ["z"], ["y"])]
    with pytest.raises(UnreadableModel, match=r"from 'Conv' on with x\[2\]=128; give the shapes"):
        read_sequences(nodes, [weight], shape=("N", 1, "samples"))


def test_a_file_of_views_is_refused_because_nothing_in_it_takes_time():
    with pytest.raises(UnreadableModel, match="no operator in it takes time"):
        read_sequences([node("Flatten", ["x"], ["y"])])
