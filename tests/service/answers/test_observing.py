"""The families of workloads, and with whose answer an observation is compared."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.named.networks import network_named
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.service.answers.observing import family_of, log_ratios
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.measurements import GivenEstimate
from tests.service.conftest import linear_row

L4 = DeviceCatalog.load().get("l4")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet50", "convolutional"),
        ("efficientnet-b0", "convolutional"),
        ("bert-base", "transformer"),
        ("vit-base", "transformer"),
        ("swin-tiny", "transformer"),
        ("gpt2", "transformer"),
        ("t5-small", "transformer"),
        ("llama-3.2-1b", "transformer"),
        ("convnext-tiny", "convolutional"),
        ("mobilenet-v3", "convolutional"),
    ],
)
def test_a_network_is_of_the_family_that_it_is_mostly_made_of(name, family):
    graph = network_named(name)
    assert graph is not None, name
    assert family_of(Query(Network(graph), L4)) == family


def test_other_networks_and_operators_have_a_family_too():
    linear = Operator("linear", "fc", ((1, 8),), ((1, 8),), 64)
    recurrent = Operator("recurrent", "lstm", ((1, 4, 8),), ((1, 4, 8),), 64)
    assert family_of(Query(Network(OperatorGraph((linear,))), L4)) == "other"
    assert family_of(Query(Network(OperatorGraph((linear, recurrent))), L4)) == "recurrent"
    assert family_of(Query(Kernel(linear), L4)) == "linear"


def row(measured, **answers) -> MeasuredRow:
    given = {name: GivenEstimate.model_validate(answer) for name, answer in answers.items()}
    content = linear_row(64, 1.0) | {"metrics": measured}
    return MeasuredRow.model_validate(content).model_copy(update={"answer": given})


def test_metrics_without_a_measured_value_or_an_answer_are_not_compared():
    found = log_ratios(
        row(
            {"latency_ms": 2.0, "power_w": None, "energy_j": 5.0, "utilisation": 0.0},
            latency_ms={"value": 1.0},
            power_w={"value": 1.0},
            utilisation={"value": 0.5},
        )
    )
    assert list(found) == ["latency_ms"]
    ratio, inside = found["latency_ms"]
    assert ratio == pytest.approx(np.log(2))
    assert np.isnan(inside), "there is no interval"


@pytest.mark.parametrize(("measured", "inside"), [(0.9, 1), (1.1, 1), (0.89, 0), (1.2, 0)])
def test_the_ends_of_an_interval_are_inside(measured, inside):
    answer = {"value": 1.0, "low": 0.9, "high": 1.1}
    assert log_ratios(row({"latency_ms": measured}, latency_ms=answer))["latency_ms"][1] == inside


def test_a_row_without_any_answer_is_not_compared():
    assert log_ratios(MeasuredRow.model_validate(linear_row(64, 1.0))) == {}
