"""Graphs survive JSON, and their digest says what they hold and nothing else."""

import json
from dataclasses import replace

import pytest
from hypothesis import given

from forerun.data.graph import OperatorGraph
from tests.laws import graphs


@given(graphs())
def test_a_graph_survives_json(graph):
    again = OperatorGraph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again == graph
    assert again.digest == graph.digest


@given(graphs())
def test_the_text_of_a_graph_is_that_of_its_json(graph):
    for named in (graph, replace(graph, source='"operators":[]')):
        assert named.to_text() == json.dumps(named.to_json(), separators=(",", ":"))


@given(graphs())
def test_the_digest_is_of_the_content_not_of_where_it_came_from(graph):
    assert replace(graph, source="elsewhere").digest == graph.digest
    assert replace(graph, batch_size=graph.batch_size + 1).digest != graph.digest


@given(graphs())
def test_unknown_operators_are_counted(graph):
    expected = sum(op.kind == "unknown" for op in graph.operators)
    assert sum(graph.unknown.values()) == expected


def test_another_format_is_refused():
    with pytest.raises(ValueError, match="format is 'x'"):
        OperatorGraph.from_json({"format": "x", "operators": []})
