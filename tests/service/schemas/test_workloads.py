"""Rows, runtimes and memory of requests: what no run can have given is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError, UnknownGraph, UnreadableModel
from forerun.data.metrics import METRICS
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.models.prediction import Estimate
from forerun.service.schemas.answers import ENGINEERING, fits
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
from forerun.service.schemas.workloads import usual_software, workload_in, workload_of
from tests.devices import L4
from tests.service.conftest import GRAPH, linear_row

DEVICES = DeviceCatalog.load()
PROCESSOR = next(device for device in DEVICES if device.kind == "cpu")


def asked(source, device, software=None):
    network = Network(replace(GRAPH, source=source))
    return usual_software(software or Software(), network, device).runtime


@pytest.mark.parametrize(
    ("source", "device", "runtime"),
    [
        ("onnx", PROCESSOR, "onnxruntime"),
        ("onnx", DEVICES.get("l4"), "eager"),
        ("torch_export", PROCESSOR, "onnxruntime"),
    ],
)
def test_networks_of_any_format_run_through_onnxruntime_on_processors(source, device, runtime):
    assert asked(source, device) == runtime


def test_a_runtime_that_was_given_stays():
    assert asked("onnx", PROCESSOR, Software(runtime="eager")) == "eager"
    assert asked("onnx", PROCESSOR, Software(layout="nhwc")) == "onnxruntime"


def test_one_operator_has_no_usual_runtime():
    software = Software()
    assert usual_software(software, Kernel(GRAPH.operators[0]), PROCESSOR) is software


def test_an_uploaded_network_is_answered_as_the_command_line_does(adapting, light):
    content = (light / "light_squeezenet.onnx").read_bytes()
    digest = adapting.post("/v1/graphs", content=content).json()["digest"]
    question = {"workload": {"kind": "network", "graph": digest}, "device": PROCESSOR.name}
    usual = adapting.post("/v1/predict", json=question).json()["metrics"]
    runtimes = {
        name: adapting.post("/v1/predict", json=question | {"software": {"runtime": name}}).json()
        for name in ("onnxruntime", "eager")
    }
    assert usual == runtimes["onnxruntime"]["metrics"] != runtimes["eager"]["metrics"]
    uploaded = adapting.post(f"/v1/predict/model?device={PROCESSOR.name}", content=content).json()
    assert uploaded["metrics"] == usual


NETWORK = Network(GRAPH)
ON_L4 = Query(NETWORK, L4)
SIZES = st.floats(1.0, 1e6)


@given(value=SIZES, more=SIZES)
def test_what_fits_by_its_high_fits_by_its_value_and_has_headroom(value, more):
    found = fits(ON_L4, Estimate(value, value, value + more, 0.9))
    assert found.fits == (found.headroom_mib >= 0) == (value + more <= found.usable_mib)
    assert found.fits_at_value or not found.fits


@pytest.mark.parametrize(
    ("name", "reported_mib"), [("t4", 15_109), ("l4", 23_034), ("h100-pcie-80gb", 81_559)]
)
def test_usable_memory_is_no_more_than_devices_report(name, reported_mib):
    device = DeviceCatalog.load().get(name)
    usable = fits(Query(NETWORK, device), Estimate(1.0)).usable_mib
    assert 0.9 * reported_mib < usable <= reported_mib


def test_the_risk_is_named_only_where_it_was_measured():
    calibrated = Estimate(100.0, 90.0, 120.0, 0.9)
    risk = "of runs like those measured, about 5 % take more than `high`"
    assert fits(ON_L4, calibrated).risk == risk
    assert "about 0.5 %" in fits(replace(ON_L4, level=99.0), calibrated).risk
    assert fits(ON_L4, Estimate(100.0, 90.0, 120.0)).risk == ENGINEERING


def test_what_is_not_known_is_null():
    bare = Device(name="box", vendor="me", kind="gpu")
    assert fits(ON_L4, None) is None
    assert fits(Query(NETWORK, bare), Estimate(1.0)) is None


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
