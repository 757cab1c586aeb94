"""Requests with keys: 401, 403, 429 in their place; writes are logged with names."""

import base64
import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.access import (
    INFERENCES,
    OF_ROUTERS,
    QUESTIONS,
    NoKeys,
    Quotas,
    asks_for_keys,
    audited,
    check_address,
    needed_scope,
    presented_key,
)
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore, keys_of
from forerun.service.stores.places import Place
from tests.coroutines import run
from tests.service.answered import problem_of
from tests.service.conftest import GRAPH, client_of

LEARNING = "/v1/llm-d/{name}/add_training_data_bulk"
STORING_POSTS = {"/v1/graphs", "/v1/devices/{name}/measurements", LEARNING}
NO_CREDENTIALS = (None, "", "Bearer", "Bearer x", "Basic x", "Basic eDp5", "Digest x")


@pytest.fixture
def keys(settings) -> KeyStore:
    return KeyStore(Place(settings.home) / "keys")


@pytest.fixture
def asked(settings, loaded):
    """Makes a client of an application with further settings."""

    def make(**given) -> TestClient:
        return stack.enter_context(client_of(settings, loaded, "http://127.0.0.1", **given))

    with ExitStack() as stack:
        yield make


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
    problem_of(refused, 401, slug="unauthenticated")
    assert refused.headers["www-authenticate"].startswith("Bearer ")
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert client.post("/v1/predict", json=EXAMPLE, headers=bearer(text)).status_code == 200


def test_every_page_and_path_needs_a_key_but_those_that_watch_the_service(asked):
    client = asked(auth="required")
    closed = ("/", "/docs", "/openapi.json", "/static/x", "/nothing", "/metrics", "/healthz/")
    assert {path: client.get(path).status_code for path in closed} == dict.fromkeys(closed, 401)
    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


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
    problem_of(refused, 429, slug="too-many-requests")
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


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "::", "plan.example"])
def test_a_public_address_needs_keys_or_a_setting_that_says_it_does_not(settings, host):
    public = settings.model_copy(update={"host": host})
    with pytest.raises(NoKeys, match=r"forerun keys create .* FORERUN_AUTH=off"):
        check_address(public)
    for auth in ("off", "required"):
        check_address(public.model_copy(update={"auth": auth}))
    keys_of(settings).create("one", "read")
    check_address(public)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_a_loopback_address_needs_no_keys(settings, host):
    check_address(settings.model_copy(update={"host": host}))


def test_counters_are_not_imported_before_they_are_set_up():
    module = "forerun.service.http.access"
    code = f"import sys, {module}; print('prometheus_client' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("host, asks", [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_public_service_stays_closed_when_its_folder_of_keys_disappears(settings, host, asks):
    named = settings.model_copy(update={"host": host})
    keys_of(named).create("one", "read")
    assert asks_for_keys(named, keys_of(named))
    shutil.rmtree(settings.home)
    assert asks_for_keys(named, keys_of(named)) == asks


class Clock:
    """Seconds that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def accepted(quotas, key, count):
    return sum(quotas.take(key) is None for _ in range(count))


def test_a_second_of_requests_may_come_at_once_and_then_the_rate():
    clock = Clock()
    quotas = Quotas(10, clock)
    assert accepted(quotas, "a", 20) == 10
    clock.now += 0.5
    assert accepted(quotas, "a", 20) == 5
    clock.now += 3600
    assert accepted(quotas, "a", 20) == 10


@pytest.mark.parametrize("per_s", [0.01, 0.5, 3, 1000])
def test_the_request_after_the_time_that_the_refusal_names_is_let_in(per_s):
    clock = Clock()
    quotas = Quotas(per_s, clock)
    accepted(quotas, "a", 1000)
    refused = quotas.take("a")
    assert refused is not None and refused.status == 429
    assert refused.retry_after_s >= 1
    clock.now += refused.retry_after_s
    assert quotas.take("a") is None


def test_refused_requests_do_not_lengthen_the_wait():
    clock = Clock()
    quotas = Quotas(1, clock)
    for _ in range(11):
        quotas.take("a")
        clock.now += 0.125
    clock.now += 1
    assert quotas.take("a") is None


def test_without_a_rate_nothing_is_refused():
    quotas = Quotas(None)
    assert accepted(quotas, "a", 1000) == 1000


BODY = json.dumps(GRAPH.to_json()).encode()
JSON = {"content-type": "application/json"}


@pytest.fixture
def logged(logged_as):
    """Runs work with a client; returns the lines about writes, and the whole log."""
    return partial(logged_as, "write")


def test_a_write_is_one_line_with_its_key_and_the_identifier_that_the_answer_has(settings, logged):
    key, text = KeyStore(Place(settings.home) / "keys").create("builder", "write")
    answers = []

    def work(client):
        headers = {"authorization": f"Bearer {text}"}
        answers.append(client.post("/v1/graphs", content=BODY, headers=headers | JSON))
        answers.append(client.post("/v1/predict", json=EXAMPLE, headers=headers))

    (line,), whole = logged(work)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "write",
        "level": "info",
        "key": key.id,
        "key_name": "builder",
        "tenant": None,
        "method": "POST",
        "path": "/v1/graphs",
        "status": 201,
        "bytes": len(BODY),
        "request_id": answers[0].headers["x-request-id"],
    }
    assert answers[1].status_code == 200
    assert text not in whole and text.split("_", 2)[2] not in whole


def test_a_refused_write_of_a_key_is_logged_and_one_without_a_key_is_not(settings, logged):
    key, text = KeyStore(Place(settings.home) / "keys").create("reader", "read")

    def work(client):
        client.delete("/v1/devices/mine", headers={"authorization": f"Bearer {text}"})
        client.delete("/v1/devices/mine", headers={"authorization": f"Bearer {text}x"})
        client.delete("/v1/devices/mine")

    (line,), whole = logged(work, host="0.0.0.0")
    assert (line["key"], line["status"], line["bytes"]) == (key.id, 403, 0)
    assert text not in whole


@pytest.mark.parametrize("host, lines", [("127.0.0.1", 0), ("0.0.0.0", 1)])
def test_without_keys_writes_are_logged_on_a_public_address(logged, host, lines):
    def work(client):
        client.post("/v1/graphs", content=BODY, headers=JSON)

    found, _ = logged(work, host=host, auth="off")
    assert [line["key"] for line in found] == [None] * lines


def test_a_write_that_fails_is_logged(capsys):
    async def failing(scope, receive, send):
        await receive()
        raise RuntimeError("a fault")

    async def receive():
        return {"type": "http.request", "body": b"123"}

    async def send(message):
        raise AssertionError

    scope = {"method": "PUT", "path": "/v1/devices/" + "x" * 1000}
    with pytest.raises(RuntimeError, match="a fault"):
        run(audited(failing, scope, receive, send, None))
    line = json.loads(capsys.readouterr().err)
    assert (line["status"], line["bytes"], len(line["path"])) == (500, 3, 200)
