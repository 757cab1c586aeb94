"""The command line: JSON alone on standard output, one clear line and exit 2 for wrong input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.models.artifact import seal
from forerun.models.chosen import Chosen
from forerun.models.roofline import Roofline
from tests.service.conftest import GRAPH

FORERUN = Path(sys.executable).parent / "forerun"


@pytest.fixture
def run(tmp_path):
    """`forerun` as a user runs it, answering with the roofline alone."""
    folder = tmp_path / "predictor"
    Chosen((Roofline(),)).save(folder)
    seal(folder, "2026-01-01")
    variables = {"FORERUN_HOME": str(tmp_path), "FORERUN_PREDICTOR_FOLDER": str(folder)}

    def call(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(FORERUN), *words],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


@pytest.fixture
def graph(tmp_path) -> str:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GRAPH.to_json()))
    return str(path)


def test_predict_prints_one_json_object_and_nothing_else(run, graph):
    done = run("predict", graph, "--device", "l4", "--precision", "fp16", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["device"]["name"] == "l4"
    assert answer["metrics"]["latency_ms"]["value"] > 0


def test_predict_compares_devices_for_people(run, graph):
    done = run("predict", graph, "--device", "l4,t4", "--device", "v100")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("on l4", "on t4", "latency_ms", "bound"))
    assert "\x1b[" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "GRAPH", "--device", "rtx 4091"], "Did you mean rtx-4090"),
        (["predict", "nowhere.onnx", "--device", "l4"], "nowhere.onnx"),
        (["predict", "GRAPH", "--device", "l4", "--precision", "fp17"], "--precision 'fp17'"),
        (["devices", "abacus"], "No device named 'abacus'"),
        (["data", "pull", "nothing"], "No dataset named 'nothing'"),
        (["evaluate", "nothing"], "No dataset named 'nothing'"),
        (["evaluate", "neusight"], "forerun data pull neusight"),
        (["promote"], "Give a version"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run, graph, words, said):
    done = run(*(graph if word == "GRAPH" else word for word in words))
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_devices_lists_the_catalogue_and_one_sheet_with_sources(run):
    listed = json.loads(run("devices", "--json").stdout)["devices"]
    assert len(listed) >= 45
    sheet = run("devices", "l4")
    assert "memory_bandwidth_gbs: 300" in sheet.stdout


def test_trace_writes_a_graph_that_predict_reads(run, graph, tmp_path):
    output = tmp_path / "again.json"
    done = run("trace", graph, "-o", str(output))
    assert done.returncode == 0, done.stderr
    assert GRAPH.digest in done.stderr
    assert run("predict", str(output), "--device", "l4").returncode == 0


def test_help_names_every_verb(run):
    text = run("--help").stdout
    verbs = ("serve", "predict", "devices", "data", "trace", "train", "evaluate", "promote")
    assert all(verb in text for verb in verbs)
