"""Rows: what no run can have given is refused, and the message names row and metric."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError, UnknownGraph, UnreadableModel
from forerun.data.metrics import METRICS
from forerun.service.schemas.measured_rows import (
    LARGEST,
    SMALLEST,
    BadMeasurement,
    MeasuredRow,
    as_measurements,
    check_values,
    expected,
    queries_of,
)
from forerun.service.schemas.workloads import workload_in, workload_of
from tests.service.conftest import GRAPH, linear_row

L4 = DeviceCatalog.load().get("l4")


def no_graph(digest):
    raise UnknownGraph(digest)


def row(**metrics) -> MeasuredRow:
    return MeasuredRow.model_validate(linear_row(64, 1.0) | {"metrics": metrics})


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"latency_ms": 0.0}, r"^measurements\.1\.metrics\.latency_ms is 0 ms; .* above 0"),
        ({"latency_ms": -3.0}, "latency_ms is -3 ms"),
        ({"power_w": float("nan")}, "power_w is nan W"),
        ({"energy_j": float("inf")}, "energy_j is inf J"),
        ({"utilisation": 1.5}, "utilisation is 1.5; it must be from 0 to 1"),
        ({"latency": 3.0}, r"^measurements\.1\.metrics: No metric 'latency'; .* latency_ms"),
        ({}, r"^measurements\.1: nothing was measured"),
        ({"latency_ms": None}, r"^measurements\.1: nothing was measured"),
    ],
)
def test_what_no_run_can_have_given_is_refused_by_row_and_metric(metrics, said):
    with pytest.raises(InputError, match=said) as refused:
        check_values([row(latency_ms=1.0), row(**metrics)])
    assert refused.value.status == 422


@given(st.sampled_from([m.name for m in METRICS]), st.floats(allow_nan=True))
def test_a_value_is_taken_only_if_it_is_a_quantity(metric, value):
    good = 0 <= value <= 1 if metric == "utilisation" else SMALLEST <= value <= LARGEST
    try:
        check_values([row(**{metric: value})])
    except BadMeasurement:
        assert not good
    else:
        assert good


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"latency_ms": 1e9}, "is expected; check the unit"),
        ({"latency_ms": 1e-9}, "is expected; check the unit"),
        ({"utilisation": 0.5}, "nothing learns from utilisation alone; give latency_ms"),
        ({"energy_j": 0.01}, "nothing learns from energy_j alone; give latency_ms or power_w"),
    ],
)
def test_what_teaches_nothing_is_refused(trained, metrics, said):
    rows = [row(latency_ms=0.1), row(**metrics)]
    measured = as_measurements(rows, queries_of(rows, L4, no_graph))
    with pytest.raises(BadMeasurement, match=said) as refused:
        expected(measured, trained.predictor)
    assert str(refused.value).startswith("measurements.1")


def test_power_follows_from_energy_and_time_where_it_was_not_measured():
    rows = [row(latency_ms=2.0, energy_j=0.1), row(latency_ms=2.0, energy_j=0.1, power_w=40.0)]
    measured = as_measurements(rows, queries_of(rows, L4, no_graph))
    np.testing.assert_allclose(measured.values["power_w"], [50.0, 40.0])
    assert np.isnan(measured.values["peak_memory_mib"]).all()


def test_a_missing_or_invalid_graph_is_reported_by_row():
    network = {"kind": "network", "graph": "0" * 32}
    rows = [row(latency_ms=1.0), MeasuredRow(workload=network, metrics={"latency_ms": 1.0})]
    with pytest.raises(UnknownGraph, match=r"^measurements\.1: No graph"):
        queries_of(rows, L4, no_graph)
    rows[1] = MeasuredRow(workload=network | {"graph": {}}, metrics={"latency_ms": 1.0})
    with pytest.raises(UnreadableModel, match=r"measurements\.1\.workload\.graph"):
        queries_of(rows, L4, no_graph)


def test_a_workload_is_the_same_after_it_was_kept():
    network = {"kind": "network", "graph": GRAPH.to_json(), "batch_size": 3, "precision": "amp"}
    for one in (row(latency_ms=1.0), MeasuredRow(workload=network, metrics={"power_w": 5.0})):
        workload = workload_of(one.workload, no_graph)
        assert workload_of(workload_in(workload), lambda digest: GRAPH) == workload
