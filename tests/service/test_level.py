"""`level` through every door: HTTP, Python and the command line, on the bundled predictors."""

import json

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import forerun
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.cli import app
from forerun.service.http.app import create_app
from forerun.service.schemas.fields import example
from forerun.service.settings import Settings

QUESTIONS = {
    "kernel": ("/v1/predict", example("kernel")),
    "network": ("/v1/predict", example("network")),
    "served": ("/v1/llm/estimate", example("llm_by_size")),
    "deployment": ("/v1/llm/estimate", example("llm_by_lengths")),
    "deployment in a question": ("/v1/predict", example("deployment")),
    "diffusion": ("/v1/diffusion/estimate", example("diffusion")),
}
TRAINING = example("network")["workload"] | {"phase": "training"}
QUESTIONS["training"] = ("/v1/predict", example("network") | {"workload": TRAINING})


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    with TestClient(create_app(settings, bundled()), raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("name", QUESTIONS)
def test_intervals_are_nested_and_all_else_is_the_same(client, name):
    path, body = QUESTIONS[name]
    usual = client.post(path, json=body).json()
    assert usual["level"] == 90.0
    assert client.post(path, json=body | {"level": 90}).json() == usual
    found = [client.post(path, json=body | {"level": level}).json() for level in (50, 80, 95, 99)]
    assert [answer["level"] for answer in found] == [50.0, 80.0, 95.0, 99.0]
    calibrated = 0
    for metric, own in usual["metrics"].items():
        each = [answer["metrics"][metric] for answer in (*found[:2], usual, *found[2:])]
        if own is None:
            assert each == [None] * 5
            continue
        for field in ("value", "unit", "grade", "grade_reason"):
            assert {one[field] for one in each} == {own[field]}, (metric, field)
        if own["low"] is not None:
            lows, highs = ([one[end] for one in each] for end in ("low", "high"))
            assert lows == sorted(lows, reverse=True), metric
            assert highs == sorted(highs), metric
        if own["coverage"] == 0.9:
            calibrated += 1
            assert [one["coverage"] for one in each] == [0.5, 0.8, 0.9, 0.95, 0.99]
    assert calibrated


def test_rankings_and_sweeps_compare_ends_of_the_level(client):
    body = example("rank") | {"devices": ["a100-sxm-80gb", "l4"]}
    usual, wide = (
        client.post("/v1/rank", json=body | level).json() for level in ({}, {"level": 99})
    )
    tops = [answer["ranked"][0]["objective"]["high"] for answer in (usual, wide)]
    assert tops[0] < tops[1]
    sweep = example("power_sweep")
    runs = [
        client.post("/v1/power/sweep", json=sweep | level).json() for level in ({}, {"level": 50})
    ]
    assert [own["level"] for own in runs] == [90.0, 50.0]
    widths = [own["runs"][-1]["latency_ms"]["high"] for own in runs]
    assert widths[0] > widths[1]


@pytest.mark.parametrize("level", [49.9, 99.5, "wide", None])
def test_other_levels_are_refused_by_name(client, level):
    answer = client.post("/v1/predict", json=example("kernel") | {"level": level})
    assert answer.status_code == 422
    assert "level" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["architecture", "design", "benchmark"])
def test_kinds_without_measured_ratios_are_refused(client, kind):
    answer = client.post("/v1/predict", json=example(kind) | {"level": 95})
    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        f"level: intervals of kind {kind} were calibrated at 90 % alone; leave it out."
    )
    assert client.post("/v1/predict", json=example(kind) | {"level": 90}).status_code == 200


def test_python_and_the_command_line_take_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    answer = forerun.predict("resnet50", device="l4", level=80)
    assert answer.latency_ms.coverage == 0.8
    assert "80 % interval" in str(answer)
    served = forerun.llm(1e9, device="l4", level=95)
    assert served.content.level == 95.0
    assert forerun.diffusion(1e9, device="l4", height=512, width=512, level=95).content.level == 95
    run = CliRunner().invoke(
        app, ["predict", "resnet50", "--device", "l4", "--level", "80", "--json"]
    )
    own = json.loads(run.stdout)["metrics"]["latency_ms"]
    assert (own["low"], own["high"]) == (answer.latency_ms.low, answer.latency_ms.high)
