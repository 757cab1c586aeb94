"""The second question about a file is answered from the first, until anything changes."""

import json
import os
import shutil

import pytest

from forerun.data.file_store import CLOCK_STEP_NS
from forerun.service.answers import answer as answers
from tests.service.conftest import GRAPH


@pytest.fixture
def model(tmp_path, light):
    """A model file that was written long ago."""
    path = tmp_path / "model.onnx"
    shutil.copyfile(light / "light_squeezenet.onnx", path)
    return aged(path)


def aged(path):
    before = path.stat().st_mtime_ns - 100 * CLOCK_STEP_NS
    os.utime(path, ns=(before, before))
    return path


@pytest.fixture
def ask(forerun, monkeypatch, model):
    """Ask about the model; says what was printed, and whether anything was predicted."""
    predict, calls = answers.answers_to, []

    def noted(questions, in_use):
        calls.append(len(questions))
        return predict(questions, in_use)

    monkeypatch.setattr(answers, "answers_to", noted)

    def call(*words, command="predict"):
        calls.clear()
        out = forerun.ok(command, model, *words)
        return out, bool(calls)

    return call


@pytest.mark.slow
def test_an_equal_question_is_not_predicted_again_and_prints_the_same(ask):
    first, predicted = ask("--device", "l4", "--explain")
    assert predicted
    assert ask("--device", "l4", "--explain") == (first, False)
    assert ask("--device", "l4", "--explain", "--json")[1] is False


@pytest.mark.slow
def test_other_options_and_devices_are_predicted(ask):
    ask("--device", "l4")
    assert ask("--device", "t4")[1]
    assert ask("--device", "l4", "--batch-size", 2)[1]
    assert ask("--device", "l4", "--phase", "training")[1]


def test_another_content_of_the_file_is_predicted(ask, model, light):
    first, _ = ask("--device", "l4", "--json")
    shutil.copyfile(light / "light_bvlc_alexnet.onnx", model)
    aged(model)
    second, predicted = ask("--device", "l4", "--json")
    assert predicted
    assert first != second


@pytest.mark.slow
def test_a_registered_device_that_changed_is_predicted_anew(ask, forerun, tmp_path):
    def register(bandwidth):
        sheet = {"name": "mine", "kind": "gpu", "vendor": "me", "memory_gib": 24}
        sheet |= {
            "memory_bandwidth_gbs": bandwidth,
            "peak_tflops": {"fp32": 20},
            "compute_units": 60,
            "tdp_w": 200,
        }
        (tmp_path / "mine.json").write_text(json.dumps(sheet))
        forerun.ok("devices", "add", tmp_path / "mine.json")

    register(400)
    slow, _ = ask("--device", "mine", "--json")
    assert ask("--device", "mine", "--json") == (slow, False)
    register(900)
    fast, predicted = ask("--device", "mine", "--json")
    assert predicted
    bounds = [json.loads(text)["roofline"]["latency_ms"] for text in (slow, fast)]
    assert bounds[0] > bounds[1]


@pytest.mark.slow
def test_measurements_are_taken_into_account_at_once(ask, forerun, tmp_path):
    before, _ = ask("--device", "l4", "--json")
    rows = [
        {
            "workload": {"kind": "network", "graph": GRAPH.to_json(), "batch_size": batch},
            "metrics": {"latency_ms": 3.0 * batch},
        }
        for batch in (1, 2, 4, 8)
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"measurements": rows}))
    forerun.ok("adapt", "--device", "l4", path)
    after, predicted = ask("--device", "l4", "--json")
    assert predicted
    versions = [json.loads(text)["predictor"]["version"] for text in (before, after)]
    assert versions[1].startswith(versions[0] + "+")


@pytest.mark.slow
def test_rank_and_sweep_are_answered_from_the_first_time_too(ask):
    for command, words in (("rank", ("--device", "l4,t4")), ("sweep", ("--device", "l4"))):
        first = ask(*words, command=command)[0]
        assert ask(*words, command=command)[0] == first
    assert ask("--device", "l4,t4", command="rank")[1] is False
    assert ask("--device", "l4,t4", "--objective", "power_w", command="rank")[1] is False


def test_a_file_that_cannot_be_read_is_refused_every_time(forerun, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("no model")
    aged(path)
    for _ in range(2):
        assert "model.onnx" in forerun.refused("predict", path, "--device", "l4")


def test_a_predictor_folder_is_asked_every_time(ask, monkeypatch, tmp_path):
    from forerun.models.artifact.sealed_folder import seal
    from forerun.models.baselines.roofline import Roofline
    from forerun.models.router import Router

    folder = tmp_path / "predictor"
    Router((Roofline(),)).save(folder)
    seal(folder, "2026-01-01")
    monkeypatch.setenv("FORERUN_PREDICTOR_FOLDER", str(folder))
    assert ask("--device", "l4")[1]
    assert ask("--device", "l4")[1]
