"""ONNX files: real architectures at their published costs, free batch, whatever bytes come."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.errors import InputError
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph
from tests.features.readers.onnx_files import FLOAT, node, onnx_file, read, stored, value

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def small(batch="N") -> bytes:
    """X @ W + residual, softmax; the batch is free when it is a name."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "x"], ["b"]),
        node("Softmax", ["b"], ["y"]),
    ]
    return onnx_file(nodes, [stored("w", np.ones((8, 8), np.float32))], (batch, 8))


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
    scaled, whole = OperatorTable.of_graph(one).at_batch(batch), OperatorTable.of_graph(many)
    for column in ("flops", "in_elements", "out_elements", "parameter_elements", "m", "n", "k"):
        np.testing.assert_allclose(getattr(scaled, column), getattr(whole, column))


def test_a_fixed_batch_stays_and_says_so():
    assert read_graph(small(batch=4), batch_size=16).batch_size == 4


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
    inputs = [value(f"x{place}", shape) for place, shape in enumerate(shapes)]
    made = node("Einsum", [one.name for one in inputs], ["y"], equation=equation)
    (operator,) = read([made], inputs=inputs).operators
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


@pytest.mark.parametrize(("limit", "results"), [([100], 8000), ([], 80 * 8400)])
def test_results_that_depend_on_the_data_are_as_many_as_is_possible(limit, results):
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
        node("Cast", ["kept"], ["floats"], to=FLOAT),
        node("Relu", ["floats"], ["y"]),
    ]
    inputs = [value("boxes", (1, 8400, 4)), value("scores", (1, 80, 8400))]
    found = read(nodes, [stored("most", np.array(limit, np.int64))], inputs=inputs)
    assert found.operators[-1].output_shapes == ((results, 3),)
    assert "number of results of NonMaxSuppression depends on the data" in found.assumptions[0]


def test_of_every_element_it_is_possible_that_it_is_not_zero():
    nodes = [node("NonZero", ["x"], ["kept"]), node("Neg", ["kept"], ["y"])]
    assert read(nodes, (), (64, 1000)).operators[-1].output_shapes == ((2, 64000),)


@pytest.mark.parametrize("op_type", ["NonZero", "NonMaxSuppression"])
def test_a_node_without_its_operands_breaks_nothing(op_type):
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["y"]), node(op_type, [], ["kept"])]
    assert len(read(nodes, (), (8,))) == 2


def test_conversions_to_eight_bits_are_part_of_the_product():
    tensors = [
        stored("scale", np.float32(0.1)),
        stored("zero", np.int8(0)),
        stored("weights", np.zeros((8, 16), np.int8)),
    ]
    grid = ["scale", "zero"]
    nodes = [
        node("QuantizeLinear", ["x", *grid], ["q"]),
        node("DequantizeLinear", ["q", *grid], ["d"]),
        node("DequantizeLinear", ["weights", *grid], ["w"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    found = read(nodes, tensors, (4, 8))
    assert [op.kind for op in found.operators] == ["linear"]
    assert found.parameter_elements == 128
    assert "precision int8" in found.assumptions[0]
