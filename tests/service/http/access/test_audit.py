"""Writes are logged with who did what; questions and secrets are not."""

import json
from functools import partial

import pytest

from forerun.service.http.access import audited
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore
from tests.coroutines import run
from tests.service.conftest import GRAPH

BODY = json.dumps(GRAPH.to_json()).encode()
JSON = {"content-type": "application/json"}


@pytest.fixture
def logged(logged_as):
    """Runs work with a client; returns the lines about writes, and the whole log."""
    return partial(logged_as, "write")


def test_a_write_is_one_line_with_its_key_and_the_identifier_that_the_answer_has(settings, logged):
    key, text = KeyStore(settings.home / "keys").create("builder", "write")
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
    key, text = KeyStore(settings.home / "keys").create("reader", "read")

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
