"""`forerun predict` on questions in files and presets, and networks by name."""

import json

import pytest

from forerun.service.presets import preset_named

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
    code, out, err = forerun("predict", written(NB201), "--device", "pixel3,raspi4")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["device", "pixel3", "raspi4"]
    assert " ms A" in out


def test_a_field_given_twice_with_different_values_is_refused(forerun, written):
    content = json.dumps({"workload": NB201, "device": "pixel3"})
    code, _, err = forerun("predict", written(content[:-1] + ', "device": "raspi4"}'))
    assert code == 2
    assert "'device' is given several times, as 'pixel3' and 'raspi4'" in " ".join(err.split())
    again = written(content[:-1] + ', "device": "pixel3"}')
    assert forerun("predict", again)[0] == 0


def test_a_whole_request_names_its_own_device(forerun, written):
    job = preset_named("training-job-150w").request
    code, out, err = forerun("predict", written(job), "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["device"]["name"] == "v100-pcie-32gb"
    assert answer["power"]["power_limit_w"] == 150


def test_a_preset_is_asked_by_its_name(forerun):
    code, out, err = forerun("predict", "hls-gesummv")
    assert code == 0, err
    assert "A sum of matrix-vector products on an FPGA on xilinx-vcu1525" in out
    assert "util_dsp" in out


def test_a_deployment_is_answered_by_its_name_as_by_llm_estimate(forerun):
    workload = preset_named("deploy-8b").request["workload"]
    assert workload["kind"] == "llm_deployment"
    code, out, err = forerun("predict", "deploy-8b", "--json")
    assert code == 0, err
    by_name = json.loads(out)["metrics"]
    load = {n.replace("_", "-"): v for n, v in workload.items() if n not in ("kind", "model")}
    options = [text for name, value in load.items() for text in (f"--{name}", str(value))]
    device = preset_named("deploy-8b").request["device"]
    model = workload["model"]["name"]
    command = ("llm", "estimate", model, "--device", device, *options, "--json")
    code, out, err = forerun(*command)
    assert code == 0, err
    estimate = json.loads(out)["metrics"]
    known = {name: own["value"] for name, own in by_name.items() if own is not None}
    assert known == {name: own["value"] for name, own in estimate.items()}
    assert known["power_w"] > 0


def test_programs_on_one_host_are_answered_as_by_colocate(forerun, written):
    code, out, err = forerun("predict", written(preset_named("neighbours").request))
    assert code == 0, err
    assert out.splitlines()[2].split("  ")[0] == "program"
    assert "triad" in out


def test_a_network_by_name_takes_all_options(forerun):
    words = ("resnet18", "--device", "l4", "--batch-size", 8, "--json")
    code, out, err = forerun("predict", *words)
    assert code == 0, err
    assert json.loads(out)["metrics"]["latency_ms"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("resnet5", "--device", "l4"), "Did you mean resnet50 or resnet152"),
        (("resnet18",), "Name a device, such as --device l4"),
        (("resnet18", "--device", "l4", "--sequence-length", "9"), "comes with forerun at one"),
        (("cheapest-device",), "`forerun rank` and `forerun sweep` ask it"),
        (("nb201-phone", "--batch-size", "8"), "--batch-size: such a question says"),
    ],
)
def test_what_names_cannot_do_is_said(forerun, words, said):
    code, out, err = forerun("predict", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (NB201, "device: name one, such as --device l4"),
        ({"kind": "poem"}, "`kind` is one of kernel, network"),
        ({"workload": {**NB201, "cells": 3}}, "workload.nb201.cells"),
        ({"candidate": {}, "host": {}}, "candidate.name: Field required"),
        ({"title": "nothing"}, "neither an ONNX model"),
        ("{", "neither an ONNX model"),
    ],
)
def test_a_file_that_is_no_valid_question_names_the_field(forerun, written, content, said):
    device = () if content is NB201 else ("--device", "l4")
    code, _, err = forerun("predict", written(content), *device)
    assert code == 2
    assert said in err


def test_presets_are_listed_and_printed(forerun):
    code, out, err = forerun("presets")
    assert code == 0, err
    assert "nb201-phone" in out
    assert "networks by name: alexnet, " in out
    listed = json.loads(forerun("presets", "--json")[1])["presets"]
    assert {"name", "title", "kind", "endpoint", "request", "note"} == set(listed[0])
    printed = json.loads(forerun("presets", "nb201-phone")[1])
    assert printed == preset_named("nb201-phone").request
    code, _, err = forerun("presets", "nb201-fone")
    assert code == 2
    assert "Did you mean nb201-phone" in err
