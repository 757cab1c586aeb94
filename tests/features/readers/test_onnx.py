"""ONNX files: real architectures at their published costs, free batch, whatever bytes come."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from forerun.data.errors import InputError
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def small(batch="N", width=8) -> bytes:
    """X @ W + residual, softmax; the batch is free when it is a name."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8], np.ones(64).tolist())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph).SerializeToString()


@pytest.mark.parametrize(
    ("name", "gmacs", "parameters_m"),
    [
        # Published: He et al. 2016; Iandola et al. 2016 (version 1.1); Simonyan & Zisserman 2015.
        ("light_resnet50", 4.1, 25.6),
        ("light_squeezenet", 0.35, 1.24),
        ("light_vgg19", 19.6, 143.7),
    ],
)
def test_real_architectures_cost_what_was_published(name, gmacs, parameters_m):
    graph = read_graph(LIGHT / f"{name}.onnx")
    table = OperatorTable.of_graph(graph)
    products = table.flops[table.k > 0].sum() / 2e9
    assert products == pytest.approx(gmacs, rel=0.1)
    assert graph.parameter_elements / 1e6 == pytest.approx(parameters_m, rel=0.03)
    assert not graph.unknown


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_every_light_architecture_is_read_without_unknown_operators(path):
    graph = read_graph(path)
    assert len(graph) > 10
    assert not graph.unknown
    assert all(source < place for place, op in enumerate(graph.operators) for source in op.inputs)


@given(st.integers(1, 64))
@settings(max_examples=10)
def test_a_free_batch_is_bound_and_scaling_equals_reading_at_that_batch(batch):
    one, many = read_graph(small()), read_graph(small(), batch_size=batch)
    assert many.batch_size == batch
    scaled, read = OperatorTable.of_graph(one).at_batch(batch), OperatorTable.of_graph(many)
    for column in ("flops", "in_elements", "out_elements", "parameter_elements", "m", "n", "k"):
        np.testing.assert_allclose(getattr(scaled, column), getattr(read, column))


def test_a_fixed_batch_stays_and_says_so():
    assert read_graph(small(batch=4), batch_size=16).batch_size == 4


@pytest.mark.parametrize(("condition", "kinds"), [(True, ["elementwise"]), (False, ["softmax"])])
def test_of_an_if_whose_condition_is_known_only_the_branch_that_is_taken_counts(condition, kinds):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, [1, 8])
    then, other = (
        helper.make_graph([helper.make_node(name, ["x"], ["made"])], name, [], [made])
        for name in ("Relu", "Softmax")
    )
    taken = helper.make_tensor("taken", TensorProto.BOOL, [1], [condition])
    node = helper.make_node("If", ["taken"], ["y"], then_branch=then, else_branch=other)
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], [taken]))
    assert [op.kind for op in read_graph(model.SerializeToString()).operators] == kinds


def test_kinds_are_distinguished():
    kinds = [op.kind for op in read_graph(small()).operators]
    assert kinds == ["linear", "elementwise", "softmax"]


@given(st.data())
def test_whatever_bytes_come_it_is_a_graph_or_a_clear_error(data):
    content = bytearray(small())
    for _ in range(data.draw(st.integers(0, 10))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    try:
        graph = read_graph(bytes(content[:cut]))
    except InputError as error:
        assert str(error).startswith("Cannot read")
        assert "\n" not in str(error)
    else:
        assert np.isfinite(OperatorTable.of_graph(graph).flops).all()


@given(st.binary(max_size=400))
def test_random_bytes_get_a_clear_error(content):
    with pytest.raises(InputError):
        read_graph(content)


def test_a_file_over_the_limit_is_refused_before_it_is_read():
    with pytest.raises(InputError, match="the upload"):
        read_graph(small(), max_bytes=10)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.onnx"):
        read_graph(tmp_path / "nothing.onnx")


def einsum(equation, *shapes):
    """The only operator of a graph that holds one einsum."""
    names = [f"x{place}" for place in range(len(shapes))]
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    graph = helper.make_graph([node], "g", given, [result])
    (operator,) = read_graph(helper.make_model(graph).SerializeToString()).operators
    return operator


@pytest.mark.parametrize(
    ("equation", "left", "right", "product"),
    [
        ("bij,bjk->bik", (2, 3, 5), (2, 5, 7), ((2, 3, 5), (2, 5, 7), (2, 3, 7))),
        ("bhqd, bhkd -> bhqk", (2, 4, 3, 5), (2, 4, 7, 5), ((8, 3, 5), (8, 5, 7), (8, 3, 7))),
        ("ij,kj->ik", (3, 5), (7, 5), ((1, 3, 5), (1, 5, 7), (1, 3, 7))),
    ],
)
def test_an_einsum_of_two_is_a_product_over_the_summed_letters(equation, left, right, product):
    found = einsum(equation, left, right)
    assert found.kind == "matmul"
    assert (*found.input_shapes, found.output_shapes[0]) == product


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
        ("ij->ji", ((2, 3),)),
        ("...j,jk->...k", ((2, 3), (3, 4))),
        ("ij,jk", ((2, 3), (3, 4))),
    ],
)
def test_an_einsum_that_is_not_followed_is_unknown(equation, shapes):
    assert einsum(equation, *shapes).kind == "unknown"


def one_node(node, inputs, outputs, *weights):
    """The graph of a node, and of a Relu on its float result."""
    graph = helper.make_graph(node, "g", inputs, outputs, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return read_graph(model.SerializeToString())


def floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or None)


@pytest.mark.parametrize(("limit", "results"), [([100], 8000), ([], 80 * 8400)])
def test_results_that_depend_on_the_data_are_as_many_as_is_possible(limit, results):
    most = helper.make_tensor("most", TensorProto.INT64, [len(limit)], limit)
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["floats"], ["y"]),
    ]
    inputs = [floats("boxes", 1, 8400, 4), floats("scores", 1, 80, 8400)]
    found = one_node(nodes, inputs, [floats("y")], most)
    assert found.operators[-1].output_shapes == ((results, 3),)
    assert "number of results of NonMaxSuppression depends on the data" in found.assumptions[0]
    nodes = [helper.make_node("NonZero", ["x"], ["kept"]), helper.make_node("Neg", ["kept"], ["y"])]
    found = one_node(nodes, [floats("x", 64, 1000)], [floats("y")])
    assert found.operators[-1].output_shapes == ((2, 64000),)


@pytest.mark.parametrize("op_type", ["NonZero", "NonMaxSuppression"])
def test_a_node_without_its_operands_breaks_nothing(op_type):
    names = (("Relu", "x", "a"), ("Exp", "a", "y"))
    nodes = [helper.make_node(kind, [source], [made]) for kind, source, made in names]
    nodes.append(helper.make_node(op_type, [], ["kept"]))
    assert len(one_node(nodes, [floats("x", 8)], [floats("y")])) == 2


def test_conversions_to_eight_bits_are_part_of_the_product():
    tensors = [
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1]),
        helper.make_tensor("zero", TensorProto.INT8, [], [0]),
        helper.make_tensor("weights", TensorProto.INT8, [8, 16], bytes(128), raw=True),
    ]
    grid = ["scale", "zero"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *grid], ["q"]),
        helper.make_node("DequantizeLinear", ["q", *grid], ["d"]),
        helper.make_node("DequantizeLinear", ["weights", *grid], ["w"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    found = one_node(nodes, [floats("x", 4, 8)], [floats("y", 4, 16)], *tensors)
    assert [op.kind for op in found.operators] == ["linear"]
    assert found.parameter_elements == 128
    assert "precision int8" in found.assumptions[0]
