"""Spec sheets over HTTP: listed, registered for good, the catalogue's own protected."""

import json

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE

JSON = {"Content-Type": "application/json"}
SHEET = {
    "name": "my-card",
    "title": "My card",
    "vendor": "Me",
    "kind": "gpu",
    "memory_gib": 48,
    "memory_bandwidth_gbs": 900,
    "peak_tflops": {"fp32": 40, "fp16": 160},
    "sources": {},
}


def test_the_catalogue_is_listed_and_filtered(client):
    everything = client.get("/v1/devices").json()["devices"]
    cpus = client.get("/v1/devices", params={"kind": "cpu"}).json()["devices"]
    assert len(everything) >= 45
    assert cpus
    assert all(device["kind"] == "cpu" for device in cpus)


def test_a_registered_device_answers_and_survives_a_restart(client, settings, loaded):
    assert client.put("/v1/devices/my-card", json=SHEET).status_code == 200
    asked = EXAMPLE | {"device": "my-card"}
    assert client.post("/v1/predict", json=asked).json()["device"]["origin"] == "registered"
    with TestClient(create_app(settings, loaded)) as restarted:
        assert restarted.post("/v1/predict", json=asked).status_code == 200


def test_a_new_sheet_changes_the_answer_at_once(client):
    client.put("/v1/devices/my-card", json=SHEET)
    asked = EXAMPLE | {"device": "my-card"}
    before = client.post("/v1/predict", json=asked).json()["metrics"]["latency_ms"]["value"]
    faster = SHEET | {"peak_tflops": {"fp32": 80}, "memory_bandwidth_gbs": 1800}
    client.put("/v1/devices/my-card", json=faster)
    after = client.post("/v1/predict", json=asked).json()["metrics"]["latency_ms"]["value"]
    assert after == pytest.approx(before / 2)


@pytest.mark.parametrize(
    ("path", "changes", "status"),
    [
        ("l4", {"name": "l4"}, 409),
        ("other", {}, 422),
        ("my-card", {"memory_bandwidth_gbs": 0}, 422),
        ("my-card", {"peak_tflops": {}}, 422),
        ("my-card", {"horsepower": 3}, 422),
    ],
)
def test_a_sheet_that_cannot_be_is_refused(client, path, changes, status):
    answer = client.put(f"/v1/devices/{path}", json=SHEET | changes)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": {"memory_gib": "\ud800"}},
        {"caveats": ["\ud800"]},
        {"aliases": ["a\ud800"]},
        {"caveats": ["long " * 1_000]},
        {"caveats": ["many"] * 1_000},
    ],
)
def test_text_that_cannot_be_stored_is_refused(client, changes):
    """Half of a surrogate pair is no Unicode; JSON may hold it all the same."""
    content = json.dumps(SHEET | changes)
    answer = client.put("/v1/devices/my-card", content=content, headers=JSON)
    assert answer.status_code == 422
    assert next(iter(changes)) in answer.json()["detail"]
