"""Nothing is said about the time of a network most of which no predictor knows."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.models.answers.unpriced import below_a_launch, not_priced
from forerun.models.prediction import Estimate

CATALOG = DeviceCatalog.load()
SHAPE = ((4, 8),)
KNOWN = Operator("elementwise", "relu", SHAPE, SHAPE)


def unknown(name="mystery", shapes=SHAPE, repeat=1):
    return Operator("unknown", name, shapes, shapes, repeat=repeat)


def asked(*operators):
    return Query(Network(OperatorGraph(operators), 1, "fp32"), CATALOG.get("l4"))


def test_half_of_the_operators_may_be_unknown_and_not_more():
    assert not_priced(asked(KNOWN, unknown())) == {}
    reasons = not_priced(asked(KNOWN, unknown("b"), unknown("a")))
    assert set(reasons) == {"latency_ms", "power_w", "energy_j", "utilisation"}
    assert reasons["latency_ms"].endswith("make up 67 % of the network's runs of operators: a, b")


def test_operators_count_as_often_as_they_run():
    assert not_priced(asked(KNOWN, KNOWN, unknown(repeat=3)))


def test_few_operators_that_move_most_of_the_elements_are_too_many():
    reasons = not_priced(asked(KNOWN, KNOWN, unknown(shapes=((100, 8),))))
    assert "% of the network's memory traffic: mystery" in reasons["energy_j"]


def test_the_most_frequent_names_come_first():
    graph = asked(*(unknown(f"n{i}") for i in range(9)), unknown("n8"))
    assert not_priced(graph)["power_w"].endswith(": n8, n0, n1, n2, n3 and 4 more")


def test_a_single_operator_is_answered_by_its_traffic():
    assert not_priced(Query(Kernel(unknown(), "fp32"), CATALOG.get("l4"))) == {}


@pytest.mark.parametrize("latency", [Estimate(SHORTEST_KERNEL_MS), Estimate(1.0), None])
def test_a_launch_or_more_is_answered(latency):
    assert below_a_launch(asked(KNOWN), latency) == {}


def test_less_than_a_launch_is_not():
    reasons = below_a_launch(asked(KNOWN), Estimate(65e-6))
    assert "65 ns is shorter than one kernel launch, 2 microseconds" in reasons["latency_ms"]
    on_cpu = Query(asked(KNOWN).workload, CATALOG.get("epyc-7763"))
    assert below_a_launch(on_cpu, Estimate(65e-6)) == {}
