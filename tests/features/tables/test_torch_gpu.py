"""Rows of torch_gpu are the questions that a user would ask about the same runs."""

import numpy as np
import pytest

from forerun.data.errors import BadTable
from forerun.features.tables.torch_gpu import gpu_measurements
from tests.contracts.tiny_torch_gpu import GPUS, GRAPH, gpu_rows
from tests.devices import CATALOG


@pytest.fixture
def rows():
    return gpu_measurements(gpu_rows(), {"tiny-16": GRAPH}, CATALOG)


def test_operators_have_the_time_of_the_gpu_and_that_with_the_launch(rows):
    operators = rows.take(rows.groups["mode"] == "operators")
    np.testing.assert_allclose(operators.values["latency_ms"], [0.01, 0.005])
    np.testing.assert_allclose(operators.values["launched_ms"], [2.0, 1.0])
    assert operators.queries[0].workload.operator.output_shapes == ((64, 1024),)
    assert operators.queries[0].workload.precision == "bf16"


def test_networks_are_asked_as_they_were_run(rows):
    eager = rows.take(rows.groups["mode"] == "eager")
    inference, training = eager.queries[0], eager.queries[1]
    assert (inference.device.name, inference.software.version) == (GPUS[0], "2.11.0")
    assert (inference.network.graph, inference.network.batch_size) == (GRAPH, 8)
    assert inference.network.inference.logits == "all"
    assert inference.network.inference.cache_tokens == 0
    assert (training.network.phase, training.network.training) == ("training", None)


def test_recorded_networks_are_no_runtime_of_their_own(rows):
    recorded = rows.take(rows.groups["mode"] == "recorded")
    assert {query.software.runtime for query in recorded.queries} == {"eager"}


def test_a_graph_that_is_not_the_one_measured_is_refused():
    with pytest.raises(BadTable, match="tiny-16 is missing, or not the one measured"):
        gpu_measurements(gpu_rows(), {}, CATALOG)
