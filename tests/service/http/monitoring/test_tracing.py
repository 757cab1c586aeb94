"""Spans and lines of the log of requests: identifiers, stages, routes, and no secret."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from fastapi.testclient import TestClient

from forerun.data.errors import MissingExtra
from forerun.service.http.answers import Answers
from forerun.service.http.app import create_app
from forerun.service.http.monitoring import tracing
from forerun.service.requests.record import RequestRecord, continued, current, stage, trace_parent
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import Place
from tests.service.answered import content_of
from tests.service.conftest import client_of
from tests.service.http.served import Handler, served
from tests.service.real_server import real_server

sdk = pytest.importorskip("opentelemetry.sdk.trace.export", reason="needs the telemetry extra")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
ENDPOINT = tracing.ENDPOINTS[1]


@pytest.fixture
def spans(settings, loaded):
    """Asks a question with headers; returns its spans by name."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    def asked(headers):
        exporter = InMemorySpanExporter()
        app = create_app(settings, loaded)
        app.state.forerun.tracing = tracing.Tracing(sdk.SimpleSpanProcessor(exporter))
        with TestClient(app) as client:
            assert client.post("/v1/predict", json=EXAMPLE, headers=headers).status_code == 200
        return {span.name: span for span in exporter.get_finished_spans()}

    return asked


def test_a_request_has_a_span_below_that_of_its_client_with_its_stages_below(spans):
    found = spans(PARENT)
    assert set(found) == {"POST /v1/predict", "read", "queue", "predict", "write"}
    request = found.pop("POST /v1/predict")
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == SPAN
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["http.route"] == "/v1/predict"
    for part in found.values():
        assert part.parent.span_id == request.context.span_id
        assert request.start_time <= part.start_time <= part.end_time <= request.end_time


def test_without_a_parent_or_with_an_invalid_one_a_request_begins_a_trace(spans):
    for headers in ({}, {"traceparent": f"00-{'0' * 32}-{SPAN}-01"}):
        assert spans(headers)["POST /v1/predict"].parent is None


def test_a_client_that_does_not_record_its_span_gets_none_recorded(spans):
    assert spans({"traceparent": f"00-{TRACE}-{SPAN}-00"}) == {}


def test_neither_sdk_nor_exporter_is_imported_without_a_collector():
    code = (
        "import sys; from forerun.service.http.app import create_app; create_app();"
        "print([n for n in sys.modules if n in ('opentelemetry.sdk', 'opentelemetry.exporter')])"
    )
    clean = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("more, wanted", [({}, True), ({"OTEL_SDK_DISABLED": "true"}, False)])
def test_the_environment_decides(monkeypatch, more, wanted):
    for name, text in {ENDPOINT: "http://127.0.0.1:4318", **more}.items():
        monkeypatch.setenv(name, text)
    assert tracing.is_wanted() is wanted


def test_a_collector_without_the_extra_is_refused_at_the_start(monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    monkeypatch.setattr(tracing, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="telemetry"):
        tracing.check_installed()


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Address of a collector, and the bodies that it has received."""
    bodies: list[bytes] = []

    class Collector(Handler):
        def do_POST(self) -> None:
            bodies.append(self.body())
            self.answer(b"")

    with served(Collector) as url:
        yield url, bodies


def named_in(bodies: list[bytes]) -> list[str]:
    """Names of all spans that a collector has received."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return [
        span.name
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_real_collector_has_all_spans_when_the_service_has_ended(
    tmp_path, roofline_folder, collector, workers
):
    url, bodies = collector
    environment = {
        ENDPOINT: url,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",  # so that all is sent at the end
        "FORERUN_PREDICTOR_FOLDER": str(roofline_folder),
    }
    with real_server(tmp_path / "home", workers=workers, environment=environment) as server:
        for _ in range(8):
            content_of(httpx.post(f"{server.url}/v1/predict", json=EXAMPLE, headers=PARENT))
        server.stop()
    assert named_in(bodies).count("POST /v1/predict") == 8
    assert "predict" in named_in(bodies)


@pytest.mark.slow
def test_a_collector_that_is_away_delays_no_answer_and_not_the_end(tmp_path, roofline_folder):
    environment = {
        ENDPOINT: "http://127.0.0.1:9",
        "FORERUN_PREDICTOR_FOLDER": str(roofline_folder),
    }
    with real_server(tmp_path / "home", environment=environment) as server:
        assert httpx.post(f"{server.url}/v1/predict", json=EXAMPLE).status_code == 200
        assert server.stop() in (0, -15)


def identified(text: str) -> RequestRecord:
    return RequestRecord.of([(b"x-request-id", text.encode("latin-1"))], staged=False)


@pytest.mark.parametrize("text", ["abc", "7f3c-11/a.b:c+d=@x_1", "a" * 128])
def test_a_sane_identifier_is_kept(text):
    assert identified(text).request_id == text


@pytest.mark.parametrize(
    "text", ["", "a" * 129, "a b", "a\nb", '"a"', "-a", "é", f"fr_0123456789ab_{'x' * 43}"]
)
def test_any_other_identifier_and_a_key_are_replaced(text):
    made = identified(text).request_id
    assert len(made) == 16 and made != identified(text).request_id


def test_a_traceparent_names_the_trace_and_the_span():
    assert trace_parent(f"00-{TRACE}-{SPAN}-01") == (TRACE, SPAN, 1)
    assert trace_parent(f"cc-{TRACE}-{SPAN}-00-more") == (TRACE, SPAN, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_an_invalid_traceparent_is_ignored(text):
    assert trace_parent(text) is None


def test_stages_are_recorded_only_where_they_are_wanted():
    without, record = RequestRecord("a"), RequestRecord("b", stages=[])
    for own in (without, record):
        with continued(own), stage("predict"):
            assert current() is own
    assert without.stages is None
    assert record.stages is not None
    ((name, start_ns, end_ns),) = record.stages
    assert name == "predict" and start_ns <= end_ns


def test_a_stage_ends_also_where_the_work_fails():
    record = RequestRecord("a", stages=[])
    with pytest.raises(ZeroDivisionError), continued(record), stage("predict"):
        raise ZeroDivisionError
    assert [own.name for own in record.stages or ()] == ["predict"]


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
    _, text = KeyStore(Place(settings.home) / "keys").create("builder", "read")
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

    with client_of(settings, loaded) as client:
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
