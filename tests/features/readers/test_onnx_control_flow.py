"""Control flow and sequences of ONNX graphs."""

from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from forerun.data.errors import ModelTooLarge, UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph
from tests.features.readers.onnx_files import (
    BOOL,
    FLOAT,
    INT64,
    node,
    read,
    stored,
    untyped,
    value,
)

# `If` and `Loop`: what they run is in the graph as often as it runs, or one unknown operator.


def body(nodes, carried=("v",), results=("v2",), weights=(), condition="c2"):
    """The body of a loop with these names of what it hands on and of what it makes."""
    given = [value("i", [], INT64), value("c", [], BOOL), *map(untyped, carried)]
    made = [untyped(condition), *map(untyped, results)]
    return helper.make_graph(nodes, "body", given, made, weights)


def loop(inner, most="m", condition="", given=("x",), makes=("y",)):
    return node("Loop", [most, condition, *given], list(makes), body=inner)


def runs(number):
    return stored("m", np.int64(number))


WHILE_TRUE = [node("Identity", ["c"], ["c2"])]
TRUE = stored("true", np.bool_(True))
ON = node("Relu", ["v"], ["v2"])
RELU = body([*WHILE_TRUE, ON])


def unknown_condition(source="x"):
    return [
        node("ReduceSum", [source], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["c2"], to=BOOL),
    ]


def test_a_loop_that_runs_a_known_number_of_times_repeats_its_body():
    graph = read([loop(RELU)], [runs(7)], batch_size=3)
    (relu,) = graph.operators
    assert (relu.kind, relu.repeat, relu.output_shapes) == ("elementwise", 7, ((3, 8),))
    assert not graph.unknown


def test_what_every_run_makes_is_stacked():
    inner = body([*WHILE_TRUE, ON], results=["v2", "v2"])
    graph = read([loop(inner, makes=["last", "all"]), node("Exp", ["all"], ["y"])], [runs(5)])
    assert graph.operators[-1].input_shapes == ((5, 1, 8),)


def test_a_body_whose_tensors_grow_is_unrolled():
    inner = body([*WHILE_TRUE, node("Concat", ["v", "v"], ["v2"], axis=1)])
    graph = read([loop(inner)], [runs(3)])
    assert [op.output_shapes[0][1] for op in graph.operators] == [16, 32, 64]


def test_a_loop_that_ends_by_its_own_counter_is_counted():
    """As exporters write `while k < 6`, without a number of runs."""
    steps = [node("Add", ["k", "one"], ["k2"]), node("Less", ["k2", "six"], ["c2"]), ON]
    ends = [stored("one", np.int64(1)), stored("six", np.int64(6))]
    inner = body(steps, ["k", "v"], ["k2", "v2"], ends)
    counted = loop(inner, "", "true", ["zero", "x"], ["last", "y"])
    graph = read([counted], [TRUE, stored("zero", np.int64(0))])
    assert [(op.name, op.repeat) for op in graph.operators] == [("Relu", 6)]


@pytest.mark.parametrize("number", [0, -1])
def test_a_loop_that_never_runs_hands_on_what_it_got(number):
    graph = read([loop(RELU, makes=["z"]), node("Exp", ["z"], ["y"])], [runs(number)])
    assert [op.name for op in graph.operators] == ["Exp"]


@pytest.mark.parametrize(
    ("inner", "most"),
    [
        pytest.param(body([*unknown_condition("v"), ON]), "", id="ends by its data"),
        pytest.param(body([*unknown_condition("v"), ON]), "m", id="ends by its data or a number"),
        pytest.param(RELU, "", id="endless"),
    ],
)
def test_a_loop_whose_runs_are_not_known_is_unknown(inner, most):
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["y"])]
    graph = read([*nodes, loop(inner, most, "true", makes=["z"])], [TRUE, runs(9)])
    assert graph.unknown == {"Loop": 1}


def test_loops_within_loops_multiply():
    deep = body([*WHILE_TRUE, node("Relu", ["w"], ["w2"])], ["w"], ["w2"])
    steps = [node("Identity", ["c"], ["d2"]), loop(deep, "three", given=["v"], makes=["v2"])]
    graph = read([loop(body(steps, condition="d2"))], [runs(2), stored("three", np.int64(3))])
    assert [op.repeat for op in graph.operators] == [6]


def branches(then, other, result="made"):
    """Branches of an `If` that both make that result."""
    return {
        name: helper.make_graph(nodes, name, [], [untyped(result)])
        for name, nodes in (("then_branch", then), ("else_branch", other))
    }


SMALL_OR_LARGE = branches(
    [node("Relu", ["x"], ["made"])], [node("Exp", ["x"], ["e"]), node("Log", ["e"], ["made"])]
)


@pytest.mark.parametrize(("condition", "names"), [(True, ["Relu"]), (False, ["Exp", "Log"])])
def test_of_an_if_whose_condition_is_known_only_the_branch_that_is_taken_counts(condition, names):
    taken = node("If", ["taken"], ["y"], **SMALL_OR_LARGE)
    graph = read([taken], [stored("taken", [condition])])
    assert [op.name for op in graph.operators] == names


def test_of_an_unknown_condition_the_larger_branch_is_taken_and_the_graph_says_so():
    graph = read([*unknown_condition(), node("If", ["c2"], ["y"], name="gate", **SMALL_OR_LARGE)])
    assert [op.name for op in graph.operators][-2:] == ["Exp", "Log"]
    (sentence,) = graph.assumptions
    assert "branch of If 'gate'" in sentence
    assert not graph.unknown


def test_of_many_unknown_conditions_the_graph_names_the_first_and_counts_the_others():
    names = ["x", *(f"t{number}" for number in range(19)), "y"]
    nodes = unknown_condition()
    for number, (given, made) in enumerate(pairwise(names)):
        twice = [node("Relu", [given], [f"once{number}"]), node("Relu", [f"once{number}"], ["out"])]
        bodies = branches([node("Relu", [given], ["out"])], twice, "out")
        nodes.append(node("If", ["c2"], [made], name=f"gate{number}", **bodies))
    (sentence,) = read(nodes).assumptions
    assert "branch of If 'gate0' and 19 others runs" in sentence


def test_loops_that_take_too_long_to_follow_are_refused(monkeypatch):
    monkeypatch.setattr("forerun.features.readers.onnx.MAX_INFERRED", 20)
    grows = node("Concat", ["v", "v"], ["v2"], axis=1)
    inner = body([*WHILE_TRUE, grows, node("Relu", ["v2"], ["v3"])], results=["v3"])
    assert len(read([loop(inner)], [runs(4)])) == 8
    with pytest.raises(ModelTooLarge, match="over 20 steps to follow"):
        read([loop(inner)], [runs(12)])


def test_a_merged_decoder_reads_a_prompt_without_a_cache():
    """Its input `use_cache_branch` is false, because the past is empty."""
    inputs = [value("x", [1, 8]), value("use_cache_branch", [1], BOOL)]
    graph = read([node("If", ["use_cache_branch"], ["y"], **SMALL_OR_LARGE)], inputs=inputs)
    assert [op.name for op in graph.operators] == ["Exp", "Log"]
    assert graph.assumptions == ()


WIDE = np.zeros((8, 8), np.float32)
"""A weight of 64 elements."""
PRODUCT = [*WHILE_TRUE, node("MatMul", ["v", "w"], ["v2"])]


def test_weights_of_a_loop_that_is_not_followed_are_counted():
    """Its trip count is an input; the same body, followed, has as many weights."""
    inner = body(PRODUCT, weights=[stored("w", WIDE)])
    inputs = [value("x", ["N", 8]), value("n", [], INT64)]
    found = read([node("Relu", ["x"], ["z"]), loop(inner, "n")], inputs=inputs)
    assert dict(found.unknown) == {"Loop": 1}
    assert found.parameter_elements == 64
    followed = read([loop(inner)], [runs(7)])
    assert not followed.unknown
    assert followed.parameter_elements == 64


def test_a_body_that_is_not_followed_loads_the_weights_that_it_reads_outside():
    nodes = [node("ReduceMax", ["x"], ["top"], keepdims=0), node("Cast", ["top"], ["n"], to=INT64)]
    assert read([*nodes, loop(body(PRODUCT), "n")], [stored("w", WIDE)]).parameter_elements == 64


def inner_graph(weight_name, inputs, outputs):
    return helper.make_graph(
        [node("MatMul", [*(inputs or ["x"]), weight_name], outputs)],
        "inner",
        [*map(untyped, inputs)],
        [*map(untyped, outputs)],
        [stored(weight_name, WIDE)],
    )


def test_both_branches_are_loaded():
    branches = {
        "then_branch": inner_graph("a", [], ["t"]), "else_branch": inner_graph("b", [], ["e"])
    }  # fmt: skip
    nodes = [*unknown_condition(), node("If", ["c2"], ["y"], **branches)]
    assert read(nodes).parameter_elements == 128


def test_weights_of_a_scan_and_of_attributes_of_other_domains_are_counted():
    scan = node("Scan", ["x"], ["y"], body=inner_graph("w", ["v"], ["v2"]), num_scan_inputs=1)
    assert read([scan]).parameter_elements == 64
    custom = node("Mine", ["x"], ["y"], domain="my.domain", packed=stored("", WIDE))
    assert read([node("Relu", ["x"], ["z"]), custom]).parameter_elements == 64


def test_weights_of_the_onnx_packages_own_models_are_counted_to_the_element():
    """Models whose weights are stored, without index tensors; what no node reads counts as well."""

    def stored_in(graph):
        yield from graph.initializer
        for one in graph.node:
            for attribute in one.attribute:
                if attribute.HasField("g"):
                    yield from stored_in(attribute.g)

    checked = 0
    for file in sorted((Path(onnx.__file__).parent / "backend/test/data").rglob("*.onnx")):
        if file.parent.name == "light":
            continue  # They make their weights by ConstantOfShape.
        tensors = list(stored_in(onnx.load(file, load_external_data=False).graph))
        floats = [t for t in tensors if t.data_type in (FLOAT, 10, 11, 16) and len(t.dims)]
        sizes = [prod(t.dims) for t in floats if tuple(t.dims) != (1,)]
        if sizes:
            checked += 1
            assert read_graph(file).parameter_elements == sum(sizes), file.name
    assert checked > 30


# Sequences of tensors in ONNX files cost what the same network costs without them.


def test_parts_of_a_sequence_cost_as_much_as_those_of_a_split():
    given = [stored("sizes", [2, 4]), stored("zero", 0), stored("one", 1)]
    functions = [node("Relu", ["p"], ["a"]), node("Exp", ["q"], ["b"])]
    listed = [
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
        node("SequenceAt", ["s", "zero"], ["p"]),
        node("SequenceAt", ["s", "one"], ["q"]),
        *functions,
        node("SequenceEmpty", [], ["none"]),
        node("SequenceInsert", ["none", "b"], ["single"]),
        node("SequenceInsert", ["single", "a", "zero"], ["both"]),
        node("ConcatFromSequence", ["both"], ["y"], axis=1),
    ]
    plain = [
        node("Split", ["x", "sizes"], ["p", "q"], axis=1),
        *functions,
        node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    listed, plain = (read(nodes, given, ("N", 6, 8)) for nodes in (listed, plain))
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
    graph = read(nodes, [stored("one", 1)], (9, 6, 8))
    assert graph.operators[-1].output_shapes == (shape,)
    assert not graph.unknown


@pytest.mark.parametrize(
    ("split", "keepdims", "shapes"),
    [
        ([stored("split", 4)], 1, [(5, 4, 8), (5, 2, 8)]),
        ([], 0, [(5, 8)] * 6),
        ([], 1, [(5, 1, 8)] * 6),
    ],
)
def test_a_tensor_is_split_into_equal_parts_or_rows(split, keepdims, shapes):
    names = ["x", *(one.name for one in split)]
    parts = node("SplitToSequence", names, ["s"], axis=1, keepdims=keepdims)
    nodes = [parts, node("SequenceAt", ["s", "last"], ["z"]), node("Neg", ["z"], ["y"])]
    graph = read(nodes, [stored("last", -1), *split], (5, 6, 8))
    assert graph.operators[0].output_shapes == tuple(shapes)
    assert graph.operators[-1].output_shapes == (shapes[-1],)


def test_a_loop_that_collects_its_results_in_a_sequence_is_followed():
    steps = [node("Relu", ["x"], ["r"]), node("SequenceInsert", ["s", "r"], ["s2"])]
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        loop(body([*steps, *WHILE_TRUE], ["s"], ["s2"]), given=["none"], makes=["all"]),
        node("ConcatFromSequence", ["all"], ["y"], axis=1),
    ]
    graph = read(nodes, [runs(3)], ("N", 6, 8))
    assert [op.name for op in graph.operators] == ["Relu"] * 3 + ["ConcatFromSequence"]
    assert graph.operators[-1].output_shapes == ((1, 18, 8),)


def test_a_refusal_says_at_which_sizes_shapes_do_not_follow():
    weight = stored("w", np.ones((4, 1, 512), np.float32))
    nodes = [node("Conv", ["x", "w"], ["z"]), node("Relu", ["z"], ["y"])]
    with pytest.raises(UnreadableModel, match=r"from 'Conv' on with x\[2\]=128; give the shapes"):
        read(nodes, [weight], ("N", 1, "samples"))


def test_a_file_of_views_is_refused_because_nothing_in_it_takes_time():
    with pytest.raises(UnreadableModel, match="no operator in it takes time"):
        read([node("Flatten", ["x"], ["y"])], (), ("N", 6, 8))
