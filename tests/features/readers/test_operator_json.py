"""Operator graphs in JSON: what is written is read; what would break a cost is refused."""

import json
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import InputError, ModelTooLarge, UnreadableModel
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph
from forerun.features.readers.operator_json import MAX_OPERATORS, graph_of
from tests.every import for_every
from tests.laws import graphs

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
