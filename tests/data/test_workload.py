"""Facts that every kind of workload has, or is known not to have."""

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import (
    Diffusion,
    Kernel,
    LlmServing,
    Network,
    batch_size_of,
    operator_graph,
    phase_of,
)

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
