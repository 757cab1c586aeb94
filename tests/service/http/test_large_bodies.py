"""Large JSON bodies: answered as small ones are, and no other request waits for them."""

import asyncio
import json
import time
from threading import Event

import httpx
import pytest

from forerun.service.http.app import create_app
from forerun.service.http.limits import ON_THE_LOOP_BYTES
from forerun.service.schemas.colocation import MOST_METRICS, MOST_SECONDS
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.settings import Settings
from tests.coroutines import run

JSON = {"Content-Type": "application/json", "X-Request-ID": "one"}


def padded(content: dict) -> bytes:
    return json.dumps(content).encode() + b" " * ON_THE_LOOP_BYTES


def test_a_large_body_gets_the_answer_and_the_problems_of_a_small_one(client):
    wrong = EXAMPLE | {"device": "no such device"}
    for content in (EXAMPLE, wrong, {}, EXAMPLE | {"workload": 3}):
        small = client.post("/v1/predict", json=content, headers=JSON)
        large = client.post("/v1/predict", content=padded(content), headers=JSON)
        assert (large.status_code, large.json()) == (small.status_code, small.json())


def test_large_measurements_wait_for_the_lane_of_adaptations_only(client):
    answer = client.post(
        "/v1/devices/l4/measurements", content=padded({"measurements": [{}]}), headers=JSON
    )
    assert answer.status_code == 422


def test_a_large_body_is_answered_while_another_is_held(tmp_path, loaded):
    """One upload that takes long keeps no other from its answer."""
    app, begun, release = create_app(Settings(home=tmp_path), loaded), Event(), Event()

    def held():
        begun.set()
        return release.wait(60)

    async def main():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://x", timeout=600) as client,
        ):
            first = asyncio.ensure_future(app.state.forerun.upload(held))
            await asyncio.to_thread(begun.wait, 60)
            second = client.post("/v1/predict", content=padded(EXAMPLE), headers=JSON)
            answer = await asyncio.wait_for(second, 60)
            waited = not first.done()
            release.set()
            return answer.status_code, waited, await first

    assert run(main()) == (200, True, True)


def window_of(number: str) -> bytes:
    """A co-location request with the longest host window, about 14 MiB."""
    metrics = [f"metric {number}" for number in range(MOST_METRICS)]
    second = "[" + ",".join([number] * MOST_METRICS) + "]"
    window = (
        f'{{"metrics": {json.dumps(metrics)}, "seconds": [{",".join([second] * MOST_SECONDS)}]}}'
    )
    return f'{{"candidate": {{"name": "p"}}, "host": {{"window": {window}}}}}'.encode()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1.2345678", '"letters"'])
def test_other_requests_wait_for_a_small_part_of_the_work_on_a_large_body(tmp_path, loaded, number):
    """The longest time for which the event loop runs nothing else, as a share of the work.

    Both are CPU time of this process, so that other processes do not matter.
    """
    content = window_of(number)
    assert len(content) > 13 * 2**20
    whole_s, longest_s = run(_times(create_app(Settings(home=tmp_path), loaded), content))
    assert longest_s < 0.7 * whole_s  # in one piece, it is all of it


async def _times(app, content):
    longest_s = 0.0

    async def tick():
        nonlocal longest_s
        while True:
            start = time.process_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.process_time() - start)

    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://x", timeout=600) as client,
    ):
        ticking = asyncio.ensure_future(tick())
        start = time.process_time()
        answer = await client.post("/v1/colocation", content=content, headers=JSON)
        whole_s = time.process_time() - start
        ticking.cancel()
    assert answer.status_code == 422
    return whole_s, longest_s
