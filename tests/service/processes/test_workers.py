"""Several workers are one service: one copy of the predictors, one version, one store."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from forerun.service.schemas.prediction import EXAMPLE
from tests.service.conftest import linear_row
from tests.service.processes.conftest import (
    WORKERS,
    answering,
    counted,
    from_all,
    shared_mib,
)
from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow
PATH = "/v1/devices/t4/measurements"
REPEATED = 24


def version(client: httpx.Client) -> str:
    answer = client.post("/v1/predict", json={**EXAMPLE, "device": "l4"})
    answer.raise_for_status()
    return str(answer.json()["predictor"]["version"])


def ready_version(client: httpx.Client) -> str:
    return str(client.get("/readyz").json()["version"])


def test_memory_is_shared(server, tmp_path):
    with real_server(tmp_path, fresh=True) as alone:
        one = shared_mib(alone)
    assert len(server.workers()) == WORKERS
    assert shared_mib(server) < 1.6 * one


def test_requests_are_counted_over_all_workers(server):
    before = counted(server, "/healthz")
    asked = len(from_all(server, lambda client: client.get("/healthz")))
    for _ in range(2 * WORKERS):
        assert counted(server, "/healthz") == before + 2 * asked
    metrics = httpx.get(f"{server.url}/metrics").text
    assert metrics.count("forerun_predictor_info{") == 1


def test_a_measurement_changes_the_version_of_all_workers_before_it_is_acknowledged(server):
    before = set(from_all(server, version))
    rows = [linear_row(rows, 0.01 * rows**0.5) for rows in (64, 128, 256, 512)]
    answer = httpx.post(
        f"{server.url}/v1/devices/l4/measurements", json={"measurements": rows}, timeout=120
    )
    assert answer.status_code == 201, answer.text
    assert before != {answer.json()["version"]}
    assert set(from_all(server, version)) == {answer.json()["version"]}
    eventually(lambda: set(from_all(server, ready_version)) == {answer.json()["version"]})


def test_a_worker_that_is_killed_is_replaced_and_its_requests_stay_counted(server):
    first, *others = server.workers()
    versions, count = set(from_all(server, version)), counted(server, "/healthz")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: first not in server.workers() and len(server.workers()) == WORKERS)
    assert set(others) < server.workers()
    assert counted(server, "/healthz") >= count
    assert set(from_all(server, version)) == versions


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

    def in_metrics(client):
        return 'forerun_observations_total{device="t4"} 20.0' in client.get("/metrics").text

    assert all(from_all(server, in_metrics))


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


def test_workers_end_with_a_parent_that_is_killed(tmp_path, roofline_folder):
    with real_server(tmp_path, workers=2, environment=answering(roofline_folder)) as server:
        orphans = server.workers()
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not any(map(_is_alive, orphans)))
        server.wait()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
