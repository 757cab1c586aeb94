"""Reading any file of a network, at sizes that a question gives."""

import io
import json
import random
import zipfile
from copy import deepcopy

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from forerun.data.errors import BadShape, InputError, ModelTooLarge, UnreadableModel
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph, torch_trace
from forerun.features.readers import torch_trace as repeated_layers
from forerun.features.readers.huggingface import HuggingFaceReader
from forerun.features.readers.input_sizes import PROBE_BATCH, InputSizes, Probe, parse_shapes
from forerun.features.readers.operator_json import MAX_OPERATORS, graph_of
from forerun.features.readers.torch_trace import with_blocks
from tests.every import for_every
from tests.features.configurations import SIZES, traced
from tests.features.readers.onnx_files import FLOAT, INT64, node, onnx_file, value
from tests.laws import graphs

# Whatever file comes, `read_graph` gives a graph whose costs are finite, or one clear line.


OPERATORS = tuple(s.name for s in onnx.defs.get_all_schemas() if s.domain == "")


def whole(name, values, dims=None):
    return helper.make_tensor(name, INT64, [len(values)] if dims is None else dims, values)


def function(name, nodes):
    return helper.make_function(
        "f", name, ["i"], ["o"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    )


def doubling(depth):
    """Functions that each call the next one twice."""
    for level in range(depth):
        inner = f"F{level + 1}"
        calls = [node(inner, ["i"], ["a"], domain="f"), node(inner, ["a"], ["o"], domain="f")]
        yield function(f"F{level}", calls)
    yield function(f"F{depth}", [node("Relu", ["i"], ["o"])])


RELU = [node("Relu", ["x"], ["y"])]
WRONG = {
    "a cycle": (onnx_file([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]), "cycle"),
    "its own input": (onnx_file([node("Add", ["x", "y"], ["y"])]), "cycle"),
    "an unmade tensor": (onnx_file([node("Add", ["x", "z"], ["y"])]), "nothing produces"),
    "a tensor produced twice": (onnx_file(RELU * 2), "produced twice"),
    "a zero dimension": (onnx_file(RELU, shape=(0, 4)), "is 0; it must be positive"),
    "a negative dimension": (onnx_file(RELU, shape=(-3, 4)), "is -3; it must be positive"),
    "an absurd dimension": (onnx_file(RELU, shape=(2**40, 2**40)), "too large"),
    "an absurd tile": (
        onnx_file([node("Tile", ["x", "r"], ["y"])], [whole("r", [2**40, 2**40])]),
        "too large",
    ),
    "an endless range": (
        onnx_file(
            [node("Range", ["a", "b", "c"], ["r"]), node("Gather", ["x", "r"], ["y"])],
            [whole("a", [0], []), whole("b", [2**55], []), whole("c", [1], [])],
        ),
        "too large|not known",
    ),
    "a missing operand": (onnx_file([node("Conv", ["x"], ["y"])]), "not known from 'Conv'"),
    "a function of itself": (
        onnx_file(
            [node("A", ["x"], ["y"], domain="f")],
            functions=[function("A", [node("A", ["i"], ["o"], domain="f")])],
        ),
        "call themselves",
    ),
    "a name that is no text": (onnx_file(RELU).replace(b"Relu", b"\xff\xfe\xfd\xfc"), "not text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_onnx_file_gets_the_line_that_mends_it(name):
    content, message = WRONG[name]
    with pytest.raises(UnreadableModel, match=message):
        read_graph(content)


def test_functions_that_double_and_double_are_refused():
    with pytest.raises(ModelTooLarge):
        read_graph(onnx_file([node("F0", ["x"], ["y"], domain="f")], functions=[*doubling(40)]))


def test_a_shape_that_doubles_and_doubles_costs_nothing():
    steps = [node("Shape", ["x"], ["s0"])]
    steps += [node("Concat", [f"s{i}"] * 2, [f"s{i + 1}"], axis=0) for i in range(60)]
    assert len(read_graph(onnx_file([*steps, *RELU]))) == 1


def test_weights_kept_outside_the_file_are_not_opened():
    weight = helper.make_tensor("w", FLOAT, [8, 8], [0.0] * 64)
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="no/such/file")
    graph = read_graph(onnx_file([node("MatMul", ["x", "w"], ["y"])], [weight]))
    assert (graph.operators[0].kind, graph.parameter_elements) == ("linear", 64)


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
    return onnx_file([*nodes, *RELU], weights, shape)


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
        read_graph(onnx_file(RELU), batch_size=batch, sequence_length=sequence)


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


@pytest.mark.parametrize(("version", "count"), [(17, 0), (99, 1)])
def test_a_newer_operator_set_than_the_known_one_is_said(version, count):
    model = onnx.load_from_string(onnx_file(RELU))
    model.opset_import[0].version = version
    said = read_graph(model.SerializeToString()).assumptions
    assert len(said) == count
    assert all("operator set 99 is newer than" in line for line in said)


# Free dimensions of inputs: given, guessed or refused, and every choice is on the graph.


def free_model(**inputs):
    """A model of one operator on each input; a dimension is a size, a name or None."""
    nodes = [node("Relu", [name], [f"{name}_out"]) for name in inputs]
    given = [value(name, dims) for name, dims in inputs.items()]
    return onnx_file(nodes, inputs=given, results=[f"{name}_out" for name in inputs])


IMAGES = free_model(images=("N", 3, "H", "W"))


def bound(graph):
    return {(b.input, b.axis): (b.size, b.why) for b in graph.bound_dimensions}


def test_what_is_not_given_is_a_default_and_says_so():
    graph = read_graph(IMAGES, batch_size=4)
    assert graph.operators[0].input_shapes == ((4, 3, 224, 224),)
    assert bound(graph) == {
        ("images", 0): (4, "batch"),
        ("images", 2): (224, "default_image_size"),
        ("images", 3): (224, "default_image_size"),
    }
    assert [b.symbol for b in graph.bound_dimensions] == ["N", "H", "W"]


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"image_size": 640}, (4, 3, 640, 640)),
        ({"shapes": {"images": (4, 3, 480, 640)}}, (4, 3, 480, 640)),
        ({"shapes": {"images": (None, 3, 480, None)}}, (4, 3, 480, 224)),
        ({"shapes": {"images": (None, None, 480, None)}, "image_size": 64}, (4, 3, 480, 64)),
    ],
)
def test_a_given_size_is_taken(options, shape):
    graph = read_graph(IMAGES, batch_size=4, **options)
    assert graph.operators[0].input_shapes == (shape,)
    assert bound(graph)["images", 2] == (shape[2], "given")
    assert graph.batch_size == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": {"image": (1, 3, 8, 8)}}, "there is no input 'image'"),
        ({"shapes": {"images": (1, 3, 8)}}, "'images' has 4 dimensions, not 3"),
        ({"shapes": {"images": (1, 4, 8, 8)}}, "dimension 1 of 'images' is fixed at 3, not 4"),
        ({"shapes": {"images": (1, 3, 0, 8)}}, "dimension 2 of 'images' is given as 0"),
        ({"shapes": {"images": (1, 3, 8, -1)}}, "dimension 3 of 'images' is given as -1"),
        ({"shapes": {"images": (1, 3, 2**40, 8)}}, "given as 1099511627776"),
        ({"shapes": {"images": (2, 3, 8, 8)}}, "given as 2, but the batch size is 1"),
    ],
)
def test_a_shape_that_contradicts_the_model_gets_one_line_that_lists_the_inputs(options, message):
    with pytest.raises(BadShape, match=message) as refusal:
        read_graph(IMAGES, **options)
    assert str(refusal.value).endswith("its inputs are images [N, 3, H, W].")
    assert "\n" not in str(refusal.value)


def test_an_image_size_is_refused_where_no_dimension_takes_it():
    fixed = free_model(images=(1, 3, 32, 32))
    assert read_graph(fixed, image_size=32).bound_dimensions == ()
    with pytest.raises(BadShape, match="no input has a free height or width to be 64"):
        read_graph(fixed, image_size=64)
    with pytest.raises(BadShape, match="image size 0"):
        read_graph(IMAGES, image_size=0)


def test_inputs_that_share_a_name_share_its_size():
    text = free_model(ids=("batch", "sequence"), mask=("batch", "sequence"))
    graph = read_graph(text, shapes={"mask": (None, 77)})
    assert bound(graph)["ids", 1] == bound(graph)["mask", 1] == (77, "given")
    with pytest.raises(BadShape, match="'sequence' is given two sizes"):
        read_graph(text, shapes={"mask": (None, 77), "ids": (None, 78)})


def test_a_sequence_is_128_tokens_unless_it_is_given():
    text = free_model(ids=("batch", "sequence"))
    assert bound(read_graph(text))["ids", 1] == (128, "default_sequence_length")
    assert bound(read_graph(text, sequence_length=9))["ids", 1] == (9, "given")


@pytest.mark.parametrize("free", ["?", -1, None])
def test_labels_that_name_nothing_are_free_and_do_not_tie_dimensions_together(free):
    network = free_model(x=(free, 3, free, free))
    assert read_graph(network, batch_size=2).operators[0].input_shapes == ((2, 3, 224, 224),)
    small = read_graph(network, batch_size=2, image_size=32)
    assert small.operators[0].input_shapes == ((2, 3, 32, 32),)


def test_the_second_dimension_of_a_recurrent_state_is_the_batch():
    graph = read_graph(free_model(x=("N", 8), state=(2, None, 64)), batch_size=5)
    assert bound(graph)["state", 1] == (5, "batch")


@pytest.mark.parametrize("separator", ["=", ":"])
def test_shapes_are_parsed(separator):
    texts = [f"input:0{separator}1x3x?x640", f"y{separator}7"]
    assert parse_shapes(texts) == {"input:0": (1, 3, None, 640), "y": (7,)}


@pytest.mark.parametrize("text", ["x", "x=", "=1x2", "x=1,2", "x=axb", "x=1x", "x=1.5"])
def test_a_text_of_another_form_is_refused(text):
    with pytest.raises(BadShape, match=r"not of the form name=1x3x640x640"):
        parse_shapes([text])


def test_two_shapes_of_one_input_are_refused():
    with pytest.raises(BadShape, match="'x' is given two shapes"):
        parse_shapes(["x=1x2", "x:1x3"])


@given(st.text(max_size=40))
def test_whatever_text_comes_it_is_parsed_or_refused(text):
    try:
        parse_shapes([text])
    except InputError as error:
        assert "\n" not in str(error).replace(text, "")


def test_bound_dimensions_survive_json_and_leave_the_digest_alone():
    graph, same = read_graph(IMAGES), read_graph(IMAGES, image_size=224)
    assert graph.digest == same.digest
    assert graph.bound_dimensions != same.bound_dimensions
    text = json.dumps(graph.to_json())
    assert OperatorGraph.from_json(json.loads(text)).bound_dimensions == graph.bound_dimensions
    assert read_graph(text.encode()).bound_dimensions == graph.bound_dimensions
    with pytest.raises(BadShape, match="takes no shapes and no image size"):
        read_graph(text.encode(), image_size=64)


# Operators that were read at the probing batch size, at another one.


def test_groups_that_hold_the_batch_are_scaled_with_the_channels():
    """A convolution with weights of each sample: one group of channels a sample."""
    shape = (1, 32 * PROBE_BATCH, 14, 14)
    attributes = {"kernel": (3, 3), "groups": PROBE_BATCH}
    op = Probe(True).at(Operator("conv", "aten.conv2d", (shape,), (shape,), 0, attributes), 2)
    assert (op.attributes["groups"], op.input_shapes) == (2, ((1, 64, 14, 14),))
    assert len(graph_of(OperatorGraph((op,), 2).to_json(), "g")) == 1


# A network read from three of its layers is the network traced whole, or is traced whole.


LAYERS = 6


def read(family, sizes):
    count = "n_layer" if family == "gpt2" else "num_hidden_layers"
    content = {"model_type": family, **sizes, count: LAYERS}
    return HuggingFaceReader().read(json.dumps(content).encode(), InputSizes(sequence_length=16))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_three_layers_tell_of_all(family, monkeypatch):
    counted = []
    trace = torch_trace.trace_module

    def counting(*given, **options):
        counted.append(trace(*given, **options))
        return counted[-1]

    monkeypatch.setattr(torch_trace, "trace_module", counting)
    graph = read(family, SIZES[family])
    assert len(counted) == 2
    assert max(map(len, counted)) < 0.7 * len(graph)
    monkeypatch.setattr(repeated_layers, "FEWEST_LAYERS", 1000)
    assert graph == read(family, SIZES[family])


def test_layers_that_differ_are_not_alike():
    import torch

    even = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(LAYERS))
    odd = torch.nn.ModuleList([*(torch.nn.Linear(4, 4) for _ in range(5)), torch.nn.Linear(4, 8)])
    slow = torch.nn.ModuleList(torch.nn.Dropout(0.1 if i < 5 else 0.2) for i in range(LAYERS))
    for layers, alike in ((even, 1), (odd, 0), (slow, 0)):
        owner = torch.nn.Module()
        owner.layers = layers
        assert len(list(repeated_layers._lists_of_equal_layers(owner))) == alike


def test_blocks_are_added_where_they_repeat():
    two, three = traced("llama", 2), traced("llama", 3)
    assert with_blocks(two, 1, three) == three
    assert with_blocks(three, 2, two) == traced("llama", 5)


# Operator graphs in JSON: what is written is read; what would break a cost is refused.


HEADS = (1, 2, 8, 4)
CONV = Operator(
    *("conv", "Conv", ((1, 4, 8, 8),), ((1, 8, 8, 8),), 72),
    {"kernel": (3, 3), "groups": 2},
)
ATTENTION = Operator("attention", "sdpa", (HEADS,) * 3, (HEADS,), inputs=(0,))
GRAPH = OperatorGraph((CONV, ATTENTION), source="operator_json").to_json()


def changed(place, field, value):
    content = deepcopy(GRAPH)
    content["operators"][place][field] = value
    return content


@given(graphs())
def test_what_is_written_is_read(graph):
    assert read_graph(json.dumps(graph.to_json()).encode()).digest == graph.digest


@for_every(
    "content, message",
    [
        (changed(1, "inputs", [1]), "reads operator 1; it must stand before"),
        (changed(1, "inputs", [-1]), "reads operator -1"),
        (changed(0, "kind", "magic"), "has kind 'magic'"),
        (changed(0, "input_shapes", [[1, 0, 8, 8]]), "dimension is 0"),
        (changed(0, "input_shapes", [[1, -4, 8, 8]]), "dimension is -4"),
        (changed(0, "input_shapes", [[1, 1.5, 8, 8]]), "dimension is 1.5"),
        (changed(0, "input_shapes", [[2**30] * 4]), "over 2\\^53 elements"),
        (changed(0, "input_shapes", [[1] * 17]), "at most 16 dimensions"),
        (changed(0, "input_shapes", []), "needs an input and an output shape"),
        (changed(0, "attributes", {"groups": 3}), "needs `groups` to divide"),
        (changed(0, "attributes", {"kernel": "x"}), "needs `kernel`"),
        (changed(1, "input_shapes", [list(HEADS)] * 2), "needs three input shapes"),
        (changed(1, "repeat", 0), "`repeat`"),
        (changed(1, "parameter_elements", -1), "`parameter_elements`"),
        (GRAPH | {"format": "other"}, "its format is 'other'"),
        (GRAPH | {"operators": []}, "at least one operator"),
        (GRAPH | {"batch_size": 0}, "batch_size is 0"),
        ({k: v for k, v in GRAPH.items() if k != "operators"}, "`operators` must be a list"),
    ],
)
def test_a_wrong_field_is_named(content, message):
    with pytest.raises(UnreadableModel, match=message):
        graph_of(content)


@pytest.mark.parametrize("side", ["input_shapes", "output_shapes"])
@pytest.mark.parametrize("kind", ["conv", "linear", "matmul", "recurrent"])
def test_a_product_needs_a_shape_on_either_side(kind, side):
    content = changed(0, "kind", kind)
    content["operators"][0][side] = []
    with pytest.raises(UnreadableModel, match="needs an input and an output shape"):
        graph_of(content)


def test_too_many_operators_are_refused():
    with pytest.raises(ModelTooLarge):
        graph_of(GRAPH | {"operators": GRAPH["operators"][:1] * (MAX_OPERATORS + 1)})


UNSOUND = {
    "deep": b'{"format":"forerun.graph/1","a":' + b"[" * 100_000,
    "endless number": b'{"format":"forerun.graph/1","batch_size":' + b"9" * 6000 + b"}",
    "nan": b'{"format":"forerun.graph/1","batch_size":NaN,"operators":[{}]}',
    "no text": b'{"format":"forerun.graph/1\xff"}',
    "truncated": json.dumps(GRAPH).encode()[:-5],
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_json_gets_a_clear_error(name):
    with pytest.raises(UnreadableModel):
        read_graph(UNSOUND[name])


@given(st.data())
def test_whatever_stands_in_a_field_it_is_costed_or_refused(data):
    content = deepcopy(GRAPH)
    row = data.draw(st.sampled_from(content["operators"]))
    field = data.draw(st.sampled_from(sorted(row)))
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    row[field] = data.draw(st.recursive(leaf, lambda v: st.lists(v, max_size=4), max_leaves=8))
    try:
        graph = graph_of(content)
    except InputError as error:
        assert str(error).startswith("Cannot read")
    else:
        assert np.isfinite(OperatorTable.of_graph(graph).at_batch(7).flops).all()
