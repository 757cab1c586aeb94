"""Liveness, readiness, metrics, models, and the shape of every error."""

from fastapi.testclient import TestClient

from forerun.data import file_store
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE


def test_not_ready_until_the_predictors_are_loaded(settings, loaded):
    app = create_app(settings, loaded)
    before = TestClient(app)
    assert before.get("/healthz").status_code == 200
    answer = before.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["type"] == "/problems/not-ready"
    with TestClient(app) as after:
        assert after.get("/readyz").status_code == 200


def test_requests_are_counted_by_route_and_cache_hits_too(client):
    for _ in range(2):
        client.post("/v1/predict", json=EXAMPLE)
    client.get("/v1/devices/l4")
    text = client.get("/metrics").text
    assert 'forerun_requests_total{route="/v1/predict",status="200"} 2.0' in text
    assert 'route="/v1/devices/{name}"' in text
    assert 'forerun_answers_total{from_cache="yes"} 1.0' in text
    assert 'forerun_predictor_info{version="test"} 1.0' in text


def test_the_loaded_predictor_is_named_with_its_card(client):
    (model,) = client.get("/v1/models").json()["models"]
    assert model["version"] == "test"
    assert model["parts"] == ["roofline"]
    assert model["card"] == "# card"


def test_the_front_page_shows_how_to_ask(client):
    page = client.get("/").text
    assert "curl" in page
    fields = ("graph", "devices", "batch_size", "precision", "phase", "runtime", "optimizer")
    assert all(f'name="{name}"' in page for name in fields)
    assert "/v1/predict/model" in page
    assert client.get("/docs").status_code == 200


def test_readiness_says_whether_things_can_be_stored(client, settings, monkeypatch):
    ready = client.get("/readyz").json()
    assert (ready["storing"], ready["not_storing"]) == (True, None)
    monkeypatch.setattr(file_store.os, "access", lambda path, mode: False)
    answer = client.get("/readyz")
    assert answer.status_code == 200, "questions are answered all the same"
    assert answer.json()["storing"] is False
    assert "FORERUN_HOME" in answer.json()["not_storing"]
