"""A real application, in process, with a predictor that needs no training."""

from pathlib import Path

import onnx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from forerun.data.graph import Operator, OperatorGraph
from forerun.models.artifact.sealed_folder import LoadedPredictor, bundled, seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.http.app import create_app
from forerun.service.settings import Settings

GRAPH = OperatorGraph(
    (
        Operator("linear", "fc", ((1, 1024),), ((1, 4096),), 4096 * 1024),
        Operator("elementwise", "relu", ((1, 4096),), ((1, 4096),), inputs=(0,)),
    )
)


@pytest.fixture(scope="session", autouse=True)
def documents():
    """Routes and OpenAPI documents that applications share: each takes long to make.

    Routers are included alike in each application, and documents differ by the number of routers.
    """
    made, routes = {}, {}
    make, include = FastAPI.openapi, FastAPI.include_router

    def shared(app):
        if app.openapi_schema is None:
            made[len(app.routes)] = app.openapi_schema = made.get(len(app.routes)) or make(app)
        return app.openapi_schema

    def included(app, router):
        if id(router) not in routes:
            before = len(app.routes)
            include(app, router)
            routes[id(router)] = app.routes[before:]
        else:
            app.router.routes += routes[id(router)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastAPI, "openapi", shared)
        patch.setattr(FastAPI, "include_router", included)
        yield made


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A folder of its own for what this process stores, and the bundled predictors."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    for name in ("PREDICTOR_FOLDER", "REGISTRY_URI"):
        monkeypatch.delenv(f"FORERUN_{name}", raising=False)
    return tmp_path / "home"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(home=tmp_path, max_upload_mib=2, max_request_mib=1, port=0)


def loaded_of(*models) -> LoadedPredictor:
    """A version `test` that answers by these models."""
    return LoadedPredictor(Router(models), "test", "2026-01-01", "# card")


def client_of(settings, loaded, url="http://testserver", /, **changes) -> TestClient:
    """A client of an application with further settings, which answers its faults."""
    app = create_app(settings.model_copy(update=changes), loaded)
    return TestClient(app, base_url=url, raise_server_exceptions=False)


@pytest.fixture
def loaded() -> LoadedPredictor:
    return loaded_of(Roofline())


@pytest.fixture
def client(settings, loaded):
    with client_of(settings, loaded) as client:
        yield client


@pytest.fixture
def roofline_folder(tmp_path) -> Path:
    """A saved predictor that answers with the roofline bound; processes of their own load it."""
    folder = tmp_path / "predictor"
    Router((Roofline(),)).save(folder)
    seal(folder, "2026-01-01")
    return folder


@pytest.fixture
def digest(client) -> str:
    answer = client.post("/v1/graphs", json=GRAPH.to_json())
    assert answer.status_code == 201, answer.text
    return answer.json()["digest"]


@pytest.fixture(scope="session")
def light() -> Path:
    """Real architectures that come with the onnx package."""
    return Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture(scope="session")
def trained() -> LoadedPredictor:
    """The bundled predictors, which adapt."""
    return bundled()


@pytest.fixture
def adapting(settings, trained):
    """A client of a service that adapts."""
    with client_of(settings, trained) as client:
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
