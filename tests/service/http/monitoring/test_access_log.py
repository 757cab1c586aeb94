"""One line for each request, with its route and identifiers and without any secret."""

import json
from functools import partial

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.answers import Answers
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def logged(logged_as):
    """Runs work with a client; returns the lines of the access log, and the whole log."""
    return partial(logged_as, "request")


def test_a_line_has_the_route_the_identifiers_and_what_was_sent(logged):
    answers = []

    def work(client):
        headers = {"x-request-id": "job-7", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        answers.append(client.get("/v1/devices/l4?x=1", headers=headers))
        answers.append(client.post("/v1/predict", json=EXAMPLE))

    (refused, answered), _ = logged(work)
    assert answers[0].headers["x-request-id"] == "job-7"
    assert answers[0].json()["request_id"] == "job-7"
    assert refused.pop("duration_ms") > 0 and refused.pop("timestamp").endswith("Z")
    assert refused == {
        "event": "request",
        "level": "info",
        "method": "GET",
        "route": "/v1/devices/{name}",
        "status": 422,
        "bytes": len(answers[0].content),
        "request_id": "job-7",
        "trace_id": TRACE,
        "key_name": None,
        "tenant": None,
        "version": "test",
        "client": "testclient",
    }
    assert answered["status"] == 200 and answered["trace_id"] is None
    assert answered["request_id"] == answers[1].headers["x-request-id"]
    assert answered["bytes"] == len(answers[1].content)


def test_a_key_appears_nowhere_and_its_name_does(settings, logged):
    _, text = KeyStore(settings.home / "keys").create("builder", "read")
    secret = text.split("_", 2)[2]

    def work(client):
        client.get("/v1/devices", headers={"authorization": f"Bearer {text}"})
        client.get(f"/v1/devices?key={text}")
        client.get("/v1/devices", headers={"x-request-id": text})
        client.get("/v1/devices", headers={"x-api-key": text, "cookie": f"key={text}"})
        client.get(f"/v1/devices/{text}", headers={"authorization": f"Bearer {text}"})

    lines, whole = logged(work)
    assert [(line["status"], line["key_name"]) for line in lines] == [
        (200, "builder"), (401, None), (401, None), (401, None), (404, "builder")
    ]  # fmt: skip
    assert secret not in whole


def test_a_fault_has_one_identifier_in_its_line_its_report_and_its_answer(logged, monkeypatch):
    answers = []

    def fails(*_):
        raise RuntimeError("broken")

    def work(client):
        monkeypatch.setattr(Answers, "question", fails)
        answers.append(client.post("/v1/predict", json=EXAMPLE))

    _, whole = logged(work)
    lines = [json.loads(line) for line in whole.splitlines()]
    identifiers = {line["request_id"] for line in lines}
    assert {line["event"] for line in lines} == {"request", "fault"}
    assert identifiers == {answers[0].json()["request_id"], answers[0].headers["x-request-id"]}
    assert len(identifiers) == 1
    assert [line["status"] for line in lines if line["event"] == "request"] == [500]


def test_the_log_can_be_turned_off(logged):
    answers = []
    lines, _ = logged(lambda client: answers.append(client.get("/healthz")), access_log=False)
    assert lines == [] and answers[0].headers["x-request-id"]


def test_a_log_that_cannot_be_written_stops_no_answer(settings, loaded, monkeypatch):
    class Broken:
        def write(self, text):
            raise BrokenPipeError

    with TestClient(create_app(settings, loaded)) as client:
        monkeypatch.setattr("sys.stderr", Broken())
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path, route",
    [
        ("/v1/predict", "/v1/predict"),
        ("/v1/devices/l4/measurements", "/v1/devices/{name}/measurements"),
        ("/v1/nothing", "unmatched"),
    ],
)
def test_a_request_that_is_refused_early_counts_under_its_route(settings, client, path, route):
    body = b"x" * (settings.max_request_mib * 2**20 + 1)
    assert client.post(path, content=body).status_code == 413
    counted = f'forerun_requests_total{{route="{route}",status="413"}} 1.0'
    assert counted in client.get("/metrics").text
