"""Schemas of workloads and of options of training."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import BadRequest, InputError, UnknownGraph, UnreadableModel
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.metrics import METRICS
from forerun.data.named.networks import network_named
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Kernel, Network, TrainingSetup
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
from forerun.service.schemas.prediction import NetworkIn
from forerun.service.schemas.run_options import (
    OPTIONS,
    BadTrainingSetup,
    InferenceIn,
    RunIn,
    TrainingIn,
    given_in,
    inference_of,
    set_ups_of,
    training_of,
)
from forerun.service.schemas.workloads import operation_of, usual_software, workload_in, workload_of
from tests.devices import L4
from tests.service.conftest import GRAPH, linear_row

# Rows, runtimes and memory of requests: what no run can have given is refused.


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


# Options of training: every one reaches the workload, and what contradicts itself is said.


GIVEN = {"optimizer": "adam8bit", "accumulation": 4, "data_parallel": 2, "zero_stage": 3}


def test_every_option_of_a_set_up_can_be_given_and_has_its_default():
    assert training_of("training", 8, TrainingIn()) == TrainingSetup()


def test_what_is_given_reaches_the_workload_and_comes_back():
    setup = training_of("training", 8, given_in(TrainingIn, GIVEN | {"lora_rank": None}))
    assert setup == TrainingSetup(**GIVEN)
    network = workload_in(Network(GRAPH, 8, "fp32", "training", setup))
    assert network.training == TrainingIn(**GIVEN)
    assert given_in(TrainingIn, dict.fromkeys(OPTIONS)) is None


@pytest.mark.parametrize(
    ("phase", "given", "said"),
    [
        ("inference", {"optimizer": "sgd"}, "optimizer: options of training"),
        ("training", {"accumulation": 3}, "accumulation 3 does not divide the batch size 8"),
        ("training", {"zero_stage": 2}, "data_parallel says how many"),
        ("training", {"optimizer": "adamx"}, "optimizer 'adamx'"),
        ("training", {"zero_stage": 4}, "zero_stage 4"),
        ("training", {"sequence_parallel": True}, "tensor_parallel says how many"),
        ("training", {"checkpoint_blocks": True, "checkpoint_segments": 2}, "give one"),
        ("training", {"tensor_parallel": 0}, "tensor_parallel 0"),
        ("training", {"dropout": 1.0}, "dropout 1.0"),
        ("training", {"frozen_weights": "nf4"}, "frozen_weights is about adapters"),
        ("training", {"lora_targets": "attention"}, "lora_targets is about adapters"),
        ("training", {"lora_rank": 4, "frozen_weights": "int3"}, "frozen_weights 'int3'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(phase, given, said):
    with pytest.raises(BadTrainingSetup, match=said) as refused:
        training_of(phase, 8, given_in(TrainingIn, given))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"tensor_parallel": 3}, None),
        ({"tensor_parallel": 5}, "Tensor parallel 5 does not divide .* 1, 2, 3, 4, 6, 12 do"),
        ({"pipeline_parallel": 4}, None),
        ({"pipeline_parallel": 5}, "Pipeline parallel 5 does not divide .* 12 have attention"),
        ({"pipeline_parallel": 24}, "Pipeline parallel 24 is more than the model has layers, 12"),
    ],
)
def test_degrees_divide_heads_and_layers_at_every_door(training, said):
    gpt2, device = network_named("gpt2"), DeviceCatalog.load().get("h100")
    run = RunIn(phase="training", **training)
    body = NetworkIn(kind="network", graph=gpt2.digest, phase="training", training=training)
    if said is None:
        assert run.query(gpt2, device, run.set_ups()).workload == workload_of(body, lambda _: gpt2)
        return
    field = next(iter(training))
    with pytest.raises(BadRequest, match=said) as refused:
        run.query(gpt2, device, run.set_ups())
    assert refused.value.field == (field,)
    with pytest.raises(BadRequest, match=said) as refused:
        workload_of(body, lambda _: gpt2)
    assert refused.value.field == ("training", field)


def layers(*kinds, width=12):
    """A network without attention: layers of these kinds, one after the other."""
    shapes = (((8, width),), ((8, width),))
    ops = (Operator(kind, kind, *shapes, width * width) for kind in kinds)
    return OperatorGraph(tuple(ops), batch_size=8)


@pytest.mark.parametrize(
    ("training", "kinds", "said"),
    [
        ({"tensor_parallel": 12}, ["linear", "linear"], None),
        ({"tensor_parallel": 16}, ["linear", "linear"], "by: the narrowest has 12 channels"),
        ({"tensor_parallel": 2}, ["conv", "conv"], "by: there is none"),
        ({"pipeline_parallel": 3}, ["conv", "conv", "linear"], None),
        (
            {"pipeline_parallel": 3},
            ["conv", "batch_norm", "linear"],
            "than the model has layers, 2",
        ),
    ],
)
def test_without_attention_each_device_has_a_layer_or_a_channel(training, kinds, said):
    run, device = RunIn(phase="training", **training), DeviceCatalog.load().get("h100")
    graph = layers(*kinds)
    if said is None:
        assert run.query(graph, device, run.set_ups()).network.training is not None
        return
    with pytest.raises(BadRequest, match=said) as refused:
        run.query(graph, device, run.set_ups())
    assert refused.value.field == tuple(training)


def test_the_help_of_degrees_says_which_metrics_are_null():
    for name in ("tensor_parallel", "pipeline_parallel"):
        words = TrainingIn.model_fields[name].description
        assert "beyond 1, time and power are null" in words


def test_stages_of_a_network_without_attention_end_anywhere():
    run = RunIn(phase="training", pipeline_parallel=3, tensor_parallel=3)
    query = run.query(network_named("resnet-50"), DeviceCatalog.load().get("h100"), run.set_ups())
    assert query.operation.device_count == 9


def test_devices_are_counted_along_all_directions():
    setup = TrainingSetup(data_parallel=2, tensor_parallel=4, pipeline_parallel=3)
    assert operation_of(Network(GRAPH, 8, "fp32", "training", setup), 90.0).device_count == 24
    assert operation_of(Network(GRAPH)).device_count == 1


def test_every_option_of_inference_can_be_given_and_has_its_default():
    assert inference_of("inference", InferenceIn()) == InferenceSetup()
    given = {"logits": "all", "cache_tokens": 128, "cache_precision": "fp8", "joined_cache": True}
    setup = inference_of("inference", given_in(InferenceIn, given))
    assert setup == InferenceSetup(**given)
    assert workload_in(Network(GRAPH, 8, inference=setup)).inference == InferenceIn(**given)
    assert workload_in(Network(GRAPH, 8)).inference is None


def test_attention_goes_to_the_set_up_of_the_phase():
    options = {"attention": "eager"}
    assert set_ups_of("training", 8, options) == (TrainingSetup(attention="eager"), None)
    assert set_ups_of("inference", 8, options) == (None, InferenceSetup(attention="eager"))
    assert set_ups_of("inference", 8, {}) == (None, None)


@pytest.mark.parametrize(
    ("phase", "given", "said"),
    [
        ("training", {"logits": "all"}, "logits: options of inference"),
        ("inference", {"dropout": 0.1}, "dropout: options of training"),
        ("inference", {"cache_tokens": -1}, "cache_tokens -1"),
    ],
)
def test_options_of_the_other_phase_are_refused(phase, given, said):
    with pytest.raises(BadTrainingSetup, match=said):
        set_ups_of(phase, 8, given)
