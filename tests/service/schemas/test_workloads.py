"""A question that leaves the runtime out means the one that such networks usually have."""

from dataclasses import replace

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.service.schemas.workloads import usual_software
from tests.service.conftest import GRAPH

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
