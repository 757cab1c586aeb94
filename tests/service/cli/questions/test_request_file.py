"""`forerun predict` on questions in files, presets, networks by name, and circuits."""

import json
import re

import pytest

from forerun.service.presets import preset_named
from tests.circuit_tools import needs_circuit_tools
from tests.data.circuits.reference import COMPARISONS, stored

CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"
NB201 = {"kind": "architecture", "space": "nb201", "cell": CELL}


@pytest.fixture
def written(tmp_path):
    """A function that writes content to a JSON file and returns its path."""

    def write(content):
        path = tmp_path / "question.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_a_workload_in_a_file_is_answered_on_the_named_devices(forerun, written):
    out = forerun.ok("predict", written(NB201), "--device", "pixel3,raspi4")
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["device", "pixel3", "raspi4"]
    assert " ms A" in out


def test_a_field_given_twice_with_different_values_is_refused(forerun, written):
    content = json.dumps({"workload": NB201, "device": "pixel3"})
    err = forerun.refused("predict", written(content[:-1] + ', "device": "raspi4"}'))
    assert "'device' is given several times, as 'pixel3' and 'raspi4'" in " ".join(err.split())
    again = written(content[:-1] + ', "device": "pixel3"}')
    forerun.ok("predict", again)


def test_a_whole_request_names_its_own_device(forerun, written):
    job = preset_named("training-job-150w").request
    answer = forerun.json("predict", written(job))
    assert answer["device"]["name"] == "v100-pcie-32gb"
    assert answer["power"]["power_limit_w"] == 150


def test_a_preset_is_asked_by_its_name(forerun):
    out = forerun.ok("predict", "hls-gesummv")
    assert "A sum of matrix-vector products on an FPGA on xilinx-vcu1525" in out
    assert "util_dsp" in out


def test_a_deployment_is_answered_by_its_name_as_by_llm_estimate(forerun):
    workload = preset_named("deploy-8b").request["workload"]
    assert workload["kind"] == "llm_deployment"
    by_name = forerun.json("predict", "deploy-8b")["metrics"]
    load = {n.replace("_", "-"): v for n, v in workload.items() if n not in ("kind", "model")}
    options = [text for name, value in load.items() for text in (f"--{name}", str(value))]
    device = preset_named("deploy-8b").request["device"]
    model = workload["model"]["name"]
    command = ("llm", "estimate", model, "--device", device, *options, "--json")
    estimate = json.loads(forerun.ok(*command))["metrics"]
    known = {name: own["value"] for name, own in by_name.items() if own is not None}
    assert known == {name: own["value"] for name, own in estimate.items()}
    assert known["power_w"] > 0


def test_programs_on_one_host_are_answered_as_by_colocate(forerun, written):
    out = forerun.ok("predict", written(preset_named("neighbours").request))
    assert out.splitlines()[2].split("  ")[0] == "program"
    assert "triad" in out


def test_a_network_by_name_takes_all_options(forerun):
    words = ("resnet18", "--device", "l4", "--batch-size", 8, "--json")
    assert json.loads(forerun.ok("predict", *words))["metrics"]["latency_ms"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("resnet5", "--device", "l4"), "Did you mean resnet50 or resnet152"),
        (("resnet18",), "Name a device, such as --device l4"),
        (("resnet18", "--device", "l4", "--sequence-length", "9"), "comes with forerun at one"),
        (("cheapest-device",), "`forerun rank` and `forerun sweep` ask it"),
        (("nb201-phone", "--batch-size", "8"), "--batch-size: such a question says"),
        (("neighbours", "--batch-size", "8"), "--batch-size: such a question says"),
        (("neighbours", "--device", "l4"), "--device: such a question is about one host"),
        (
            ("resnet18", "--device", "l4", "--instances", "2"),
            "--instances applies only to processors",
        ),
        (("resnet18", "--device", "l5"), "--device: No device named 'l5'"),
        (
            ("resnet18", "--device", "l4", "--steps", "9"),
            "--steps applies only to diffusers pipelines",
        ),
    ],
)
def test_what_names_cannot_do_is_said(forerun, words, said):
    err = forerun.refused("predict", *words)
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (NB201, "device: name one, such as --device l4"),
        ({"kind": "poem"}, "`kind` is one of kernel, network"),
        ({"workload": {**NB201, "cells": 3}}, "workload.nb201.cells"),
        ({"candidate": {}, "host": {}}, "candidate.name: Field required"),
        ({"title": "nothing"}, "not an ONNX model"),
        ("{", "not an ONNX model"),
    ],
)
def test_a_file_that_is_no_valid_question_names_the_field(forerun, written, content, said):
    device = () if content is NB201 else ("--device", "l4")
    assert said in forerun.refused("predict", written(content), *device)


def test_presets_are_listed_and_printed(forerun):
    out = forerun.ok("presets")
    assert "nb201-phone" in out
    assert "networks by name: alexnet, " in out
    listed = forerun.json("presets")["presets"]
    assert {"name", "title", "kind", "endpoint", "request", "note"} == set(listed[0])
    printed = json.loads(forerun("presets", "nb201-phone")[1])
    assert printed == preset_named("nb201-phone").request
    assert "Did you mean nb201-phone" in forerun.refused("presets", "nb201-fone")


@pytest.fixture
def netlist(tmp_path):
    path = tmp_path / "divider.json"
    path.write_text(json.dumps(stored("divider_serial")))
    return path


def test_the_frequency_and_the_critical_path_are_printed(forerun, netlist):
    out = forerun.ok("predict", netlist, "--explain")
    assert " MHz" in out
    assert "of 7,680 logic cells" in out
    assert "critical path of clk" in out
    assert " -> " in out
    (line,) = (line for line in out.splitlines() if line.startswith("period of "))
    whole, parts = re.match(r"period of (\d+) ps at [\d.]+ MHz = (.*)", line).groups()
    signed = [float(sign + ps) for sign, ps in re.findall(r"(-?) ?[a-z]+ (\d+)", parts)]
    assert len(signed) == 4
    assert sum(signed) == pytest.approx(float(whole), abs=2.5)


def test_json_is_the_answer_of_the_service(forerun, netlist):
    found = forerun.json("predict", netlist)
    assert found["clocks"][0]["fmax_mhz"]["unit"] == "MHz"
    assert found["device"]["name"] == "lattice-ice40-hx8k"


def test_another_device_or_an_option_of_networks_is_refused(forerun, netlist):
    err = forerun.refused("predict", netlist, "--device", "l4")
    assert "lattice-ice40-hx8k" in err
    assert "--batch-size" in forerun.refused("predict", netlist, "--batch-size", 8)


def test_a_picture_of_a_circuit_is_refused(forerun, netlist, tmp_path):
    err = forerun.refused("predict", netlist, "--picture", tmp_path / "x.svg")
    assert "networks and hardware designs" in " ".join(err.split())


@needs_circuit_tools
def test_verilog_is_mapped_by_yosys(forerun, tmp_path):
    path = tmp_path / "comparisons.v"
    path.write_text(COMPARISONS)
    assert "comparisons.v on lattice-ice40-hx8k" in forerun.ok("predict", path)
    path.write_text("module comparisons(")
    assert "syntax error" in forerun.refused("predict", path)


def test_verilog_without_yosys_says_what_to_install(forerun, tmp_path, monkeypatch):
    path = tmp_path / "comparisons.v"
    path.write_text(COMPARISONS)
    monkeypatch.setattr("forerun.data.collectors.circuits.tools.shutil.which", lambda _: None)
    assert "apt-get install yosys" in forerun.refused("predict", path)
