"""Spans of requests: their parent, their stages, and that a collector gets them."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from fastapi.testclient import TestClient

from forerun.data.errors import MissingExtra
from forerun.service.http.app import create_app
from forerun.service.http.monitoring import tracing
from forerun.service.schemas.prediction import EXAMPLE
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
    for stage in found.values():
        assert stage.parent.span_id == request.context.span_id
        assert request.start_time <= stage.start_time <= stage.end_time <= request.end_time


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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    server.server_close()
    thread.join()


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
            answer = httpx.post(f"{server.url}/v1/predict", json=EXAMPLE, headers=PARENT)
            assert answer.status_code == 200
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
