"""Whatever file comes, `read_graph` gives a graph whose costs are finite, or one clear line."""

import io
import json
import random
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from forerun.data.errors import InputError, ModelTooLarge, UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node
OPERATORS = tuple(s.name for s in onnx.defs.get_all_schemas() if s.domain == "")
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def model(nodes, weights=(), shape=("N", 4), functions=()):
    """A model that reads `x` of this shape."""
    x = helper.make_tensor_value_info("x", FLOAT, list(shape))
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], list(weights))
    made = helper.make_model(graph, opset_imports=OPSETS, functions=list(functions))
    return made.SerializeToString()


def whole(name, values, dims=None):
    return helper.make_tensor(name, INT64, [len(values)] if dims is None else dims, values)


def function(name, nodes):
    return helper.make_function("f", name, ["i"], ["o"], nodes, OPSETS)


def doubling(depth):
    """Functions that each call the next one twice."""
    for level in range(depth):
        inner = f"F{level + 1}"
        calls = [node(inner, ["i"], ["a"], domain="f"), node(inner, ["a"], ["o"], domain="f")]
        yield function(f"F{level}", calls)
    yield function(f"F{depth}", [node("Relu", ["i"], ["o"])])


RELU = [node("Relu", ["x"], ["y"])]
WRONG = {
    "a cycle": (model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]), "cycle"),
    "its own input": (model([node("Add", ["x", "y"], ["y"])]), "cycle"),
    "an unmade tensor": (model([node("Add", ["x", "z"], ["y"])]), "nothing makes"),
    "a tensor made twice": (model(RELU * 2), "made twice"),
    "a zero dimension": (model(RELU, shape=(0, 4)), "is 0; it must be positive"),
    "a negative dimension": (model(RELU, shape=(-3, 4)), "is -3; it must be positive"),
    "an absurd dimension": (model(RELU, shape=(2**40, 2**40)), "absurdly large"),
    "an absurd tile": (
        model([node("Tile", ["x", "r"], ["y"])], [whole("r", [2**40, 2**40])]),
        "absurdly large",
    ),
    "an endless range": (
        model(
            [node("Range", ["a", "b", "c"], ["r"]), node("Gather", ["x", "r"], ["y"])],
            [whole("a", [0], []), whole("b", [2**55], []), whole("c", [1], [])],
        ),
        "absurdly large|not known",
    ),
    "a missing operand": (model([node("Conv", ["x"], ["y"])]), "not known from 'Conv'"),
    "a function of itself": (
        model(
            [node("A", ["x"], ["y"], domain="f")],
            functions=[function("A", [node("A", ["i"], ["o"], domain="f")])],
        ),
        "call themselves",
    ),
    "a name that is no text": (model(RELU).replace(b"Relu", b"\xff\xfe\xfd\xfc"), "no text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_onnx_file_gets_the_line_that_mends_it(name):
    content, message = WRONG[name]
    with pytest.raises(UnreadableModel, match=message):
        read_graph(content)


def test_functions_that_double_and_double_are_refused():
    with pytest.raises(ModelTooLarge):
        read_graph(model([node("F0", ["x"], ["y"], domain="f")], functions=doubling(40)))


def test_a_shape_that_doubles_and_doubles_costs_nothing():
    steps = [node("Shape", ["x"], ["s0"])]
    steps += [node("Concat", [f"s{i}"] * 2, [f"s{i + 1}"], axis=0) for i in range(60)]
    assert len(read_graph(model([*steps, *RELU]))) == 1


def test_weights_kept_outside_the_file_are_not_opened():
    weight = helper.make_tensor("w", FLOAT, [4, 8], [0.0] * 32)
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="no/such/file")
    graph = read_graph(model([node("MatMul", ["x", "w"], ["y"])], [weight]))
    assert (graph.operators[0].kind, graph.parameter_elements) == ("linear", 32)


def random_model(seed):
    """Operators drawn from all there are, with operands and attributes that rarely fit."""
    draw = random.Random(seed)
    names, nodes = ["x", "", "w0", "w1", "w2"], []
    for place in range(draw.randint(1, 5)):
        reads = [draw.choice(names) for _ in range(draw.randint(0, 4))]
        makes = [f"t{place}.{i}" for i in range(draw.randint(0, 2))]
        made = node(draw.choice(OPERATORS), reads, makes)
        for name in draw.sample(["axis", "group", "strides", "pads", "num_heads", "perm"], 2):
            value = draw.choice([0, -1, 10**9, [1, 1], [0, 0], [2**40] * 2])
            made.attribute.append(helper.make_attribute(name, value))
        nodes.append(made)
        names += makes
    weights = [
        helper.make_tensor("w0", FLOAT, [8, 4, 3, 3], [0.0] * 288),
        helper.make_tensor("w1", FLOAT, [4, 4], [0.0] * 16),
        whole("w2", [2, -1]),
    ]
    shape = draw.choice([("N", 4), ("N", 4, 8, 8), (), ("N", "s", 4)])
    return model([*nodes, *RELU], weights, shape)


@given(st.integers(0, 2**32))
def test_whatever_nodes_a_model_holds_it_is_costed_or_refused(seed):
    try:
        graph = read_graph(random_model(seed), batch_size=3)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(OperatorTable.of_graph(graph).flops).all()


@pytest.fixture(scope="module")
def program():
    """The bytes of a small exported torch program, compressed."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))
    buffer, packed = io.BytesIO(), io.BytesIO()
    exported = torch.export.export(module.eval(), (torch.zeros(2, 8),), strict=False)
    torch.export.save(exported, buffer)
    with zipfile.ZipFile(buffer) as archive:
        name = next(n for n in archive.namelist() if n.endswith("models/model.json"))
        content = archive.read(name)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


@given(place=st.floats(0, 1), value=st.integers(0, 255))
def test_a_damaged_archive_gets_a_clear_error_or_is_read(program, place, value):
    content = bytearray(program)
    content[int(place * (len(content) - 1))] = value
    try:
        read_graph(bytes(content))
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "field", [{"depths": [10**7]}, {"num_labels": 10**9}, {"text_config": {"n_layer": 10**6}}]
)
def test_a_configuration_that_would_build_for_hours_is_refused_at_once(field):
    content = json.dumps({"model_type": "resnet"} | field).encode()
    with pytest.raises(UnreadableModel, match="can be traced"):
        read_graph(content)


@pytest.mark.parametrize(("batch", "sequence"), [(0, None), (-1, None), (2**40, None), (1, 0)])
def test_absurd_numbers_of_a_query_are_refused(batch, sequence):
    with pytest.raises(UnreadableModel):
        read_graph(model(RELU), batch_size=batch, sequence_length=sequence)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("a.gguf", b"GGUF\x03\x00\x00\x00", "GGUF file of llama.cpp"),
        ("a.pt", b"\x80\x02}q\x00.", "pickle of torch.save"),
        ("a.pth", None, "pickle of torch.save"),
    ],
)
def test_a_file_that_holds_no_network_is_named(tmp_path, name, content, said):
    if content is None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("weights/data.pkl", b"\x80\x02}q\x00.")
        content = archive.getvalue()
    path = tmp_path / name
    path.write_bytes(content)
    for source in (path, content):
        with pytest.raises(UnreadableModel, match=said):
            read_graph(source)


def test_a_newer_operator_set_than_the_known_one_is_said():
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    for version, count in ((17, 0), (99, 1)):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.opset_import[0].version = version
        said = read_graph(model.SerializeToString()).assumptions
        assert len(said) == count
        assert all("operator set 99 is newer than" in line for line in said)
