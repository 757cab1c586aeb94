"""What another protocol brings is answered by the application, also where its client leaves."""

import asyncio
import json

import pytest

from forerun.data.errors import BadRequest, MissingExtra
from forerun.service.http.app import create_app, loaded_app
from forerun.service.http.open_inference.grpc_service import InnerRequest, answer_of
from tests.coroutines import run


def request(body=b"{}", *, error=None, method="POST", path="/v2/models/forerun/infer", headers=()):
    async def made():
        if error is not None:
            raise error
        return body

    return InnerRequest(method, path, headers, "10.1.2.3", made)


@pytest.fixture
def app(settings, loaded):
    app = create_app(settings, loaded)

    async def asked(given):
        async with app.router.lifespan_context(app):
            return await answer_of(app, given)

    return lambda given: run(asked(given))


def test_the_answer_has_the_status_the_headers_and_the_body(app):
    answer = app(request(method="GET", path="/v2/health/live"))
    assert (answer.status, answer.content) == (200, b'{"live":true}')
    assert dict(answer.headers)[b"content-type"] == b"application/json"


def test_an_error_of_making_the_body_is_answered_as_any_error(app):
    answer = app(request(error=BadRequest("no such tensor")))
    assert (answer.status, json.loads(answer.content)["detail"]) == (422, "no such tensor")


def test_a_fault_is_answered_and_does_not_end_the_caller(app):
    answer = app(request(error=RuntimeError("boom")))
    assert answer.status == 500
    assert b"boom" not in answer.content


def test_no_body_is_made_for_a_request_that_is_not_let_in(settings, loaded):
    app = create_app(settings.model_copy(update={"auth": "required"}), loaded)

    async def asked():
        async with app.router.lifespan_context(app):
            return await answer_of(app, request(error=AssertionError("the body was made")))

    assert run(asked()).status == 401


def test_a_body_over_the_limit_is_refused(app):
    assert app(request(b" " * (2**20 + 1))).status == 413


def test_a_handler_learns_that_its_client_has_left_and_ends_by_itself():
    events = []

    async def handler(scope, receive, send):
        assert (await receive())["body"] == b"{}"
        events.append("began")
        events.append((await receive())["type"])

    async def left():
        asked = asyncio.create_task(answer_of(handler, request()))
        while not events:
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        while len(events) < 2:
            await asyncio.sleep(0)

    run(left())
    assert events == ["began", "http.disconnect"]


def test_the_client_is_that_of_the_call():
    seen = {}

    async def handler(scope, receive, send):
        seen.update(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})

    headers = [(b"authorization", b"Bearer x")]
    run(answer_of(handler, request(headers=headers)))
    assert seen["client"][0] == "10.1.2.3"
    assert headers[0] in seen["headers"]


def test_a_port_for_grpc_without_grpc_is_refused_before_anything_is_loaded(settings, monkeypatch):
    monkeypatch.setattr("forerun.service.http.app.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="scripts/install grpc"):
        loaded_app(settings.model_copy(update={"grpc_port": 0}))
