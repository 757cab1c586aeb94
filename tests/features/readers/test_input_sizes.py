"""Free dimensions of inputs: given, guessed or refused, and every choice is on the graph."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from forerun.data.errors import BadShape, InputError
from forerun.data.graph import OperatorGraph
from forerun.features.readers import read_graph
from forerun.features.readers.input_sizes import parse_shapes


def model(*inputs, operator="Relu"):
    """A model of one operator on each input; a dimension is a size, a name or None."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(dims)) for n, dims in inputs]
    nodes = [helper.make_node(operator, [name], [f"{name}_out"]) for name, _ in inputs]
    results = [helper.make_empty_tensor_value_info(f"{name}_out") for name, _ in inputs]
    return helper.make_model(helper.make_graph(nodes, "g", given, results)).SerializeToString()


IMAGES = model(("images", ("N", 3, "H", "W")))


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
    fixed = model(("images", (1, 3, 32, 32)))
    assert read_graph(fixed, image_size=32).bound_dimensions == ()
    with pytest.raises(BadShape, match="no input has a free height or width to be 64"):
        read_graph(fixed, image_size=64)
    with pytest.raises(BadShape, match="image size 0"):
        read_graph(IMAGES, image_size=0)


def test_inputs_that_share_a_name_share_its_size():
    text = model(("ids", ("batch", "sequence")), ("mask", ("batch", "sequence")))
    graph = read_graph(text, shapes={"mask": (None, 77)})
    assert bound(graph)["ids", 1] == bound(graph)["mask", 1] == (77, "given")
    with pytest.raises(BadShape, match="'sequence' is given two sizes"):
        read_graph(text, shapes={"mask": (None, 77), "ids": (None, 78)})


def test_a_sequence_is_128_tokens_unless_it_is_given():
    text = model(("ids", ("batch", "sequence")))
    assert bound(read_graph(text))["ids", 1] == (128, "default_sequence_length")
    assert bound(read_graph(text, sequence_length=9))["ids", 1] == (9, "given")


def test_labels_that_name_nothing_do_not_tie_dimensions_together():
    graph = read_graph(model(("x", ("?", 3, "?", "?"))), batch_size=2)
    assert graph.operators[0].input_shapes == ((2, 3, 224, 224),)


def test_a_size_of_minus_one_is_free():
    graph = read_graph(model(("x", (-1, 3, -1, -1))), batch_size=2, image_size=32)
    assert graph.operators[0].input_shapes == ((2, 3, 32, 32),)


def test_the_second_dimension_of_a_recurrent_state_is_the_batch():
    graph = read_graph(model(("x", ("N", 8)), ("state", (2, None, 64))), batch_size=5)
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
