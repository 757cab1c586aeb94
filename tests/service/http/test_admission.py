"""What is let in: requests and bytes in flight, and bodies of unknown length."""

import asyncio

import httpx
import pytest

from forerun.service.http.limits import Admission
from forerun.service.http.telemetry import Telemetry
from forerun.service.settings import Settings
from tests.coroutines import run

MIB = 2**20


class Slow:
    """An application that reads a body, and answers once it is released."""

    def __init__(self):
        self.received = self.reading = 0
        self.release = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.reading += 1
        while True:
            message = await receive()
            self.received += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def admitted(tmp_path, work, **limits):
    """Run `work(client, application)` against a slow application behind the limits."""

    async def main():
        app, telemetry = Slow(), Telemetry()
        guarded = Admission(app, Settings(home=tmp_path, **limits), telemetry, {"/upload"})
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            await work(client, app)
        return telemetry

    return run(main())


async def started(app, number):
    while app.reading < number:
        await asyncio.sleep(0)


def test_a_request_over_the_number_in_flight_is_refused_and_health_is_not(tmp_path):
    async def work(client, app):
        open_ones = [asyncio.ensure_future(client.get("/")) for _ in range(2)]
        await started(app, 2)
        refused = await client.get("/")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["type"] == "/problems/busy"
        watching = [asyncio.ensure_future(client.get(path)) for path in ("/healthz", "/metrics")]
        await started(app, 4)
        app.release.set()
        answers = await asyncio.gather(*open_ones, *watching)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert (await client.get("/")).status_code == 200

    telemetry = admitted(tmp_path, work, requests_in_flight=2)
    count = telemetry.registry.get_sample_value("forerun_refused_total", {"limit": "requests"})
    assert count == 1


def test_bodies_that_are_half_sent_take_no_place(tmp_path):
    """Clients that send a part of what they declare keep nobody from an answer."""
    last = asyncio.Event()

    async def half():
        yield b"1234"
        await last.wait()
        yield b"5678"

    async def work(client, app):
        headers = {"content-length": "8"}
        slow = [
            asyncio.ensure_future(client.post("/", content=half(), headers=headers))
            for _ in range(5)
        ]
        await started(app, 5)
        whole = asyncio.ensure_future(client.post("/", content=b"12345678"))
        await started(app, 6)
        app.release.set()
        assert (await whole).status_code == 200
        last.set()
        assert [answer.status_code for answer in await asyncio.gather(*slow)] == [200] * 5

    admitted(tmp_path, work, requests_in_flight=2)


@pytest.mark.parametrize("declared", [True, False])
def test_bodies_over_the_bytes_in_flight_are_refused(tmp_path, declared):
    async def body():
        for _ in range(4):
            yield bytes(MIB)

    def content():
        return bytes(4 * MIB) if declared else body()

    async def work(client, app):
        first = asyncio.ensure_future(client.post("/upload", content=content()))
        await started(app, 1)
        while app.received < 4 * MIB:
            await asyncio.sleep(0)
        if declared:
            refused = await client.post("/upload", content=content())
            assert refused.status_code == 503
            assert "FORERUN_MIB_IN_FLIGHT" in refused.json()["detail"]
        else:
            with pytest.raises(Exception, match="FORERUN_MIB_IN_FLIGHT"):
                await client.post("/upload", content=content())
        app.release.set()
        assert (await first).status_code == 200
        assert (await client.post("/upload", content=content())).status_code == 200

    admitted(tmp_path, work, mib_in_flight=6)


def test_a_body_that_is_larger_than_all_may_be_is_let_in_alone(tmp_path):
    async def work(client, app):
        app.release.set()
        assert (await client.post("/upload", content=bytes(3 * MIB))).status_code == 200

    admitted(tmp_path, work, mib_in_flight=2)


@pytest.mark.parametrize("declared", [True, False])
def test_only_uploads_may_be_over_the_limit_of_a_request(client, declared):
    content = b"[" + b" " * (2 * MIB) + b"]"

    def chunks():
        yield content

    headers = {"Content-Type": "application/json"}
    given = content if declared else chunks()
    answer = client.post("/v1/predict", content=given, headers=headers)
    assert answer.status_code == 413
    assert answer.json()["type"] == "/problems/request-too-large"
