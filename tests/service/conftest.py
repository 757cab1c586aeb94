"""A real application, in process and over a socket, with a predictor that needs no training."""

import socket
import threading
from pathlib import Path

import onnx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from forerun.data.graph import Operator, OperatorGraph
from forerun.models.artifact.loading import LoadedPredictor, bundled
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.http.app import create_app
from forerun.service.settings import Settings
from tests.waiting import eventually

GRAPH = OperatorGraph(
    (
        Operator("linear", "fc", ((1, 1024),), ((1, 4096),), 4096 * 1024),
        Operator("elementwise", "relu", ((1, 4096),), ((1, 4096),), inputs=(0,)),
    )
)


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(home=tmp_path, max_upload_mib=2, max_request_mib=1, port=0)


@pytest.fixture
def loaded() -> LoadedPredictor:
    return LoadedPredictor(Router((Roofline(),)), "test", "2026-01-01", "# card")


@pytest.fixture
def client(settings, loaded):
    with TestClient(create_app(settings, loaded), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def digest(client) -> str:
    answer = client.post("/v1/graphs", json=GRAPH.to_json())
    assert answer.status_code == 201, answer.text
    return answer.json()["digest"]


@pytest.fixture(scope="session")
def light() -> Path:
    """Real architectures that come with the onnx package."""
    return Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture
def server(settings, loaded):
    """The base address of a real server on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(
        create_app(settings, loaded), host="127.0.0.1", port=port, log_level="error"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    eventually(lambda: running.started, within_s=60)
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def trained() -> LoadedPredictor:
    """The bundled predictors, which adapt."""
    return bundled()


@pytest.fixture
def adapting(settings, trained):
    """A client of a service that adapts."""
    with TestClient(create_app(settings, trained), raise_server_exceptions=False) as client:
        yield client


def kernel_row(operator: Operator, latency_ms: float | None, precision: str = "fp32") -> dict:
    """One measurement as it goes over HTTP."""
    content = OperatorGraph((operator,)).to_json()["operators"][0]
    content = {key: value for key, value in content.items() if key not in ("inputs", "repeat")}
    workload = {"kind": "kernel", "operator": content, "precision": precision}
    return {"workload": workload, "metrics": {"latency_ms": latency_ms}}


def linear_row(rows: int, latency_ms: float | None) -> dict:
    """A measurement of a linear layer; its size tells it from others."""
    operator = Operator("linear", "fc", ((rows, 512),), ((rows, 512),), 512 * 512)
    return kernel_row(operator, latency_ms)
