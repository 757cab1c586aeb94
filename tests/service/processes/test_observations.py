"""Observations that come to several workers: stored once, and reported by all of them alike."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.service.conftest import linear_row
from tests.service.processes.conftest import from_all
from tests.waiting import eventually

pytestmark = pytest.mark.slow
PATH = "/v1/devices/t4/measurements"
REPEATED = 24


def observed(server, number, key, source="observe"):
    rows = [linear_row(64 + number, 0.02)] * 5
    with httpx.Client(base_url=server.url, timeout=120) as client:
        return client.post(
            PATH,
            json={"measurements": rows, "source": source},
            headers={"Idempotency-Key": key},
        )


def test_a_request_that_several_workers_get_at_once_is_stored_once(server):
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: observed(server, n % 4, f"k{n % 4}"), range(REPEATED)))
    assert {answer.status_code for answer in answers} == {201}
    contents = {(n % 4, answer.content) for n, answer in enumerate(answers)}
    assert len(contents) == 4, "each of four requests has one answer"
    sets = httpx.get(f"{server.url}{PATH}", params={"source": "observe"}).json()["sets"]
    assert len(sets) == 4

    def reported(client):
        return client.get("/v1/drift").json()["observations"]

    eventually(lambda: all(each == {"t4": 20} for each in from_all(server, reported)))

    def counted(client):
        return 'forerun_observations_total{device="t4"} 20.0' in client.get("/metrics").text

    assert all(from_all(server, counted))


def test_one_key_with_two_contents_is_stored_once_and_refused_once(server):
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda n: observed(server, 50 + n, "contested"), range(2)))
    assert sorted(answer.status_code for answer in answers) == [201, 422]


def test_a_request_to_adapt_that_several_workers_get_at_once_is_carried_out_once(server):
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: observed(server, 90, "adapts", "adapt"), range(6)))
    assert {answer.status_code for answer in answers} == {201}, [a.text for a in answers]
    assert len({answer.content for answer in answers}) == 1
    sets = httpx.get(f"{server.url}{PATH}").json()["sets"]
    assert len(sets) == 1
