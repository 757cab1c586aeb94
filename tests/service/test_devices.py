"""Spec sheets over HTTP: listed, registered for good, the catalogue's own protected."""

import json

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE
from tests.service.conftest import linear_row

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


def test_a_registered_device_is_deleted_for_good(client, settings, loaded):
    client.put("/v1/devices/my-card", json=SHEET)
    answer = client.delete("/v1/devices/my-card")
    assert (answer.status_code, answer.content) == (204, b"")
    with TestClient(create_app(settings, loaded)) as restarted:
        for each in (client, restarted):
            assert each.get("/v1/devices/my-card").status_code == 404
            assert each.post("/v1/predict", json=EXAMPLE | {"device": "my-card"}).status_code == 404
            assert each.delete("/v1/devices/my-card").status_code == 404
    assert client.put("/v1/devices/my-card", json=SHEET).status_code == 200


@pytest.mark.parametrize("name", ["l4", "geforce-gtx-1660-ti"])
def test_devices_that_came_with_the_package_are_not_deleted(client, name):
    answer = client.delete(f"/v1/devices/{name}")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/taken-name"
    assert client.get(f"/v1/devices/{name}").status_code == 200


def test_a_device_with_measurements_in_use_is_deleted_only_after_they_are_rolled_back(adapting):
    adapting.put("/v1/devices/my-card", json=SHEET)
    rows = {"measurements": [linear_row(64, 0.05)]}
    made = adapting.post("/v1/devices/my-card/measurements", json=rows).json()["set"]
    refused = adapting.delete("/v1/devices/my-card")
    assert refused.status_code == 409
    assert refused.json()["type"] == "/problems/still-in-use"
    remedy = f"/v1/devices/my-card/measurements/{made}"
    assert remedy in refused.json()["detail"]
    assert adapting.delete(remedy).status_code == 200
    assert adapting.delete("/v1/devices/my-card").status_code == 204


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
