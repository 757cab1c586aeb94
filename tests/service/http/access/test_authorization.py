"""Requests with keys: 401 without one, 403 beyond its scope, 429 beyond its rate."""

import base64

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.access import (
    INFERENCES,
    OF_ROUTERS,
    QUESTIONS,
    needed_scope,
    presented_key,
)
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore
from tests.service.conftest import GRAPH

LEARNING = "/v1/llm-d/{name}/add_training_data_bulk"
STORING_POSTS = {"/v1/graphs", "/v1/devices/{name}/measurements", LEARNING}
NO_CREDENTIALS = (None, "", "Bearer", "Bearer x", "Basic x", "Basic eDp5", "Digest x")


@pytest.fixture
def keys(settings) -> KeyStore:
    return KeyStore(settings.home / "keys")


@pytest.fixture
def asked(settings, loaded):
    """Makes a client of an application with further settings."""

    def make(**given) -> TestClient:
        app = create_app(settings.model_copy(update=given), loaded)
        client = TestClient(app, raise_server_exceptions=False, base_url="http://127.0.0.1")
        client.__enter__()
        clients.append(client)
        return client

    clients: list[TestClient] = []
    yield make
    for client in clients:
        client.__exit__(None, None, None)


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def basic(text: str, user: str = "") -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{text}'.encode()).decode()}"}


def test_without_keys_nothing_changes(asked):
    assert asked().post("/v1/predict", json=EXAMPLE).status_code == 200


def test_from_the_first_key_on_a_running_service_asks_for_it(asked, keys):
    client = asked()
    _, text = keys.create("one", "read")
    refused = client.post("/v1/predict", json=EXAMPLE)
    assert refused.status_code == 401
    assert refused.json()["type"] == "/problems/unauthenticated"
    assert refused.headers["www-authenticate"].startswith("Bearer ")
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert client.post("/v1/predict", json=EXAMPLE, headers=bearer(text)).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/static/x", "/nothing", "/metrics", "/healthz/"]
)
def test_every_page_and_path_needs_a_key(asked, path):
    assert asked(auth="required").get(path).status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_who_watches_the_service_needs_no_key(asked, path):
    assert asked(auth="required").get(path).status_code == 200


@pytest.mark.parametrize("given", NO_CREDENTIALS)
def test_what_is_no_key_is_refused(asked, keys, given):
    keys.create("one", "admin")
    headers = {} if given is None else {"authorization": given}
    assert asked().get("/v1/devices", headers=headers).status_code == 401


def test_two_headers_are_refused_since_either_may_be_meant(asked, keys):
    _, text = keys.create("one", "read")
    twice = [("authorization", f"Bearer {text}")] * 2
    assert asked().get("/v1/devices", headers=twice).status_code == 401


def test_browsers_send_the_key_as_a_password(asked, keys):
    _, text = keys.create("one", "read")
    client = asked()
    assert 'Basic realm="forerun"' in client.get("/").headers["www-authenticate"]
    assert client.get("/", headers=basic(text, "anybody")).status_code == 200
    assert client.get("/", headers=basic("x", text)).status_code == 401


@pytest.mark.parametrize("scope, allowed", [("read", False), ("write", True), ("admin", True)])
def test_only_some_scopes_may_store_and_delete(asked, keys, scope, allowed):
    _, text = keys.create("one", scope)
    client, headers = asked(), bearer(text)
    assert client.get("/v1/devices", headers=headers).status_code == 200
    assert client.get("/metrics", headers=headers).status_code == 200
    stored = client.post("/v1/graphs", json=GRAPH.to_json(), headers=headers)
    assert stored.status_code == (201 if allowed else 403)
    deleted = client.delete("/v1/graphs/nothing", headers=headers)
    assert (deleted.status_code != 403) == allowed
    if not allowed:
        assert stored.json()["type"] == "/problems/forbidden"
        assert "--scope write" in stored.json()["detail"]


def test_every_operation_is_a_question_or_a_write(client):
    """A new path to which POST only asks belongs in QUESTIONS; until then it needs `write`."""
    operations = [
        (method.upper(), path)
        for path, methods in client.app.openapi()["paths"].items()
        for method in methods
    ]
    writes = {
        (method, path)
        for method, path in operations
        if needed_scope({"method": method, "path": path}) == "write"
    }
    posts = {path for method, path in operations if method == "POST"}
    asking = {path for path in posts if path.startswith(INFERENCES) or OF_ROUTERS.fullmatch(path)}
    assert posts - asking == QUESTIONS | STORING_POSTS
    others = {method for method, _ in operations} - {"GET", "POST"}
    stores = {("POST", path) for path in STORING_POSTS}
    assert writes == {each for each in operations if each[0] in others} | stores
    assert needed_scope({"method": "POST", "path": "/circuits"}) == "read"


def test_switched_off_nobody_is_asked(asked, keys):
    keys.create("one", "read")
    assert asked(auth="off").get("/v1/devices").status_code == 200


def test_beyond_its_rate_a_key_is_asked_to_wait_and_others_go_on(asked, keys):
    _, text = keys.create("one", "read")
    _, other = keys.create("two", "read")
    client = asked(requests_per_s_per_key=0.01)
    assert client.get("/v1/workloads", headers=bearer(text)).status_code == 200
    refused = client.get("/v1/workloads", headers=bearer(text))
    assert refused.status_code == 429
    assert refused.json()["type"] == "/problems/too-many-requests"
    assert 90 < int(refused.headers["retry-after"]) <= 100
    assert client.get("/v1/workloads", headers=bearer(other)).status_code == 200
    metrics = client.get("/metrics", headers=bearer(text))
    assert 'forerun_refused_total{limit="requests_per_s_per_key"} 1.0' in metrics.text


def test_the_host_is_checked_before_the_key(asked):
    client = asked(auth="required")
    assert client.get("/", headers={"host": "rebound.example"}).status_code == 421


def test_bytes_that_are_no_text_are_no_key():
    for value in (b"Basic \xff\xfe", b"Basic ====", b"Bearer \xff", b"\xff"):
        given = presented_key({"headers": [(b"authorization", value)]})
        assert given in (None, "\xff")
