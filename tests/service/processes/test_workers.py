"""Several workers are one service: versions, stores, keys, tenants, and an end within its time."""

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
import pytest

from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import Place
from tests.service.conftest import GRAPH, linear_row
from tests.service.processes.conftest import (
    WORKERS,
    answering,
    counted,
    from_all,
    shared_mib,
)
from tests.service.real_server import real_server
from tests.service.test_devices import SHEET
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


CLIENTS = 200
UNFINISHED = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


@pytest.mark.parametrize("number", [1, 2])
def test_slow_clients_do_not_keep_it(tmp_path, roofline_folder, number):
    environment = answering(roofline_folder) | {"FORERUN_GRACEFUL_SECONDS": "1"}
    with (
        real_server(tmp_path, workers=number, environment=environment) as server,
        ExitStack() as open_sockets,
    ):
        for _ in range(CLIENTS):
            client = socket.create_connection(("127.0.0.1", server.port))
            open_sockets.enter_context(closing(client))
            client.sendall(UNFINISHED)
        running = {server.pid, *server.workers()}
        server.stop()
        assert not running & set(server.pids())


def test_workers_end_by_themselves_when_the_parent_is_interrupted(tmp_path, roofline_folder):
    with real_server(tmp_path, workers=2, environment=answering(roofline_folder)) as server:
        os.kill(server.pid, signal.SIGINT)
        server.wait()
        assert "SIGKILL" not in server.log.read_text()


CONNECTIONS = 20
ROWS = [linear_row(size, size / 100) for size in range(64, 640, 64)]


def test_all_workers_answer_each_tenant_with_what_it_stored(tmp_path):
    keys = KeyStore(Place(tmp_path) / "keys")
    headers = {
        tenant: {"Authorization": f"Bearer {keys.create(tenant, 'write', tenant)[1]}"}
        for tenant in ("vision", "speech")
    }
    with real_server(tmp_path, workers=2) as server:

        def ask(tenant, method, path, **given):
            """A request over a connection of its own, which any worker may take."""
            return httpx.request(
                method, server.url + path, headers=headers[tenant], timeout=60, **given
            )

        assert ask("vision", "PUT", "/v1/devices/my-card", json=SHEET).is_success
        body = {"measurements": ROWS}
        assert ask("vision", "POST", "/v1/devices/l4/measurements", json=body).is_success
        question = {"workload": linear_row(777, None)["workload"], "device": "l4"}
        versions = {"vision": set(), "speech": set()}
        for _ in range(CONNECTIONS):
            for tenant, status in (("vision", 200), ("speech", 404)):
                assert ask(tenant, "GET", "/v1/devices/my-card").status_code == status
                answer = ask(tenant, "POST", "/v1/predict", json=question).json()
                versions[tenant].add(answer["predictor"]["version"])
        (adapted,), (plain,) = versions["vision"], versions["speech"]
        assert adapted.startswith(f"{plain}+")


def test_a_server_on_all_addresses_asks_for_keys(tmp_path, roofline_folder):
    home = tmp_path / "home"
    keys = KeyStore(Place(home) / "keys")
    (reader, read), (writer, write) = keys.create("one", "read"), keys.create("two", "write")
    busy, often = keys.create("three", "read")
    settings = {
        "FORERUN_HOST": "0.0.0.0",
        "FORERUN_PREDICTOR_FOLDER": str(roofline_folder),
        "FORERUN_REQUESTS_PER_S_PER_KEY": "0.001",
    }
    with (
        real_server(home, workers=WORKERS, environment=settings) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):

        def ask(text: str) -> httpx.Response:
            return client.get("/v1/workloads", headers={"authorization": f"Bearer {text}"})

        def store(text: str) -> int:
            headers = {"authorization": f"Bearer {text}"}
            return client.post("/v1/graphs", json=GRAPH.to_json(), headers=headers).status_code

        assert client.get("/v1/workloads").status_code == 401
        assert (store(write), store(read)) == (201, 403)
        answers = [ask(often) for _ in range(10)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert 1 <= len(answers) - len(refused) <= WORKERS
        assert {answer.status_code for answer in refused} == {429}
        assert all(900 < int(answer.headers["retry-after"]) <= 1000 for answer in refused)
        keys.revoke(busy.id)
        assert {ask(often).status_code for _ in range(10)} == {401}
        server.stop()
        log = server.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if '"write"' in line]
    assert {(line["key"], line["status"]) for line in lines} == {(writer.id, 201), (reader.id, 403)}
    for text in (read, write, often):
        assert text.split("_", 2)[2] not in log
