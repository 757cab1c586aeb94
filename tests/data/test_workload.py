"""Workloads, queries, graphs and software versions."""

import json
from dataclasses import replace
from typing import get_type_hints

import pytest
from hypothesis import given

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import (
    Benchmark,
    Colocation,
    Diffusion,
    HostWindow,
    Kernel,
    LlmServing,
    Network,
    ProgramProfile,
    TrainingSetup,
    batch_size_of,
    operator_graph,
    phase_of,
)
from tests.devices import HOST
from tests.laws import graphs

RELU = Operator("elementwise", "relu", ((4, 4),), ((4, 4),))
GRAPH = OperatorGraph((RELU,), batch_size=4)


def test_an_operator_is_a_graph_of_one_and_runs_forward():
    assert operator_graph(Kernel(RELU)).digest == OperatorGraph((RELU,)).digest
    assert phase_of(Kernel(RELU)) == "inference"


def test_a_network_has_the_graph_and_the_phase_it_was_given():
    run = Network(GRAPH, phase="training")
    assert (operator_graph(run), phase_of(run)) == (GRAPH, "training")


def test_what_runs_batches_says_how_large_they_are():
    assert batch_size_of(Network(GRAPH, 8)) == 8
    assert batch_size_of(Diffusion(1e9, 512, 512, batch_size=2)) == 2
    assert batch_size_of(Kernel(RELU)) is None
    assert batch_size_of(LlmServing(1e9, 1e9)) is None


def test_a_query_gives_its_workload_as_the_right_kind():
    benchmark = Benchmark("suite", (("cores", 4.0), ("mode", "fast")))
    colocation = Colocation(ProgramProfile("a"), HostWindow())
    assert Query(benchmark, HOST).benchmark is benchmark
    assert Query(colocation, HOST).colocation is colocation
    assert benchmark.by_name == {"cores": 4.0, "mode": "fast"}


@pytest.mark.parametrize("kind", ["network", "design", "colocation"])
def test_another_kind_is_an_error_that_names_both(kind):
    with pytest.raises(TypeError, match=f"kind 'benchmark' is no {kind}"):
        getattr(Query(Benchmark("suite", ()), HOST), kind)


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
def test_the_digest_depends_on_the_content_but_not_on_its_source(graph):
    assert replace(graph, source="elsewhere").digest == graph.digest
    assert replace(graph, batch_size=graph.batch_size + 1).digest != graph.digest


@given(graphs())
def test_unknown_operators_are_counted(graph):
    expected = sum(op.kind == "unknown" for op in graph.operators)
    assert sum(graph.unknown.values()) == expected


def test_another_format_is_refused():
    with pytest.raises(ValueError, match="format is 'x'"):
        OperatorGraph.from_json({"format": "x", "operators": []})


@pytest.mark.parametrize(
    ("text", "number"),
    [("2.9.1", 2.09), ("2.13.0+cpu", 2.13), ("1.13", 1.13), ("2", 2.0), ("2+cpu", 2.0),
     ("2020.2", 2020.02), (None, None), ("", None), ("x", None), ("2.x", None), ("-1", None)],
)  # fmt: skip
def test_versions_become_numbers_that_sort(text, number):
    assert Software(version=text).version_number == number


@pytest.mark.parametrize("version", ["9" * 400, "1." + "9" * 400, "²"])
def test_a_version_that_is_not_a_release_number_is_unknown(version):
    assert Software(version=version).version_number is None


def test_a_docstring_below_a_field_is_the_description_of_the_field():
    hints = get_type_hints(TrainingSetup, include_extras=True)
    texts = [own.description for own in hints["lora_rank"].__metadata__ if own.description]
    assert texts == ["rank of LoRA adapters, with all other weights frozen; 0 for none"]
