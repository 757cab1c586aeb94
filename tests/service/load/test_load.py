"""A real server with the bundled predictors under load: it refuses what is too much, and goes on.

Nothing here asserts a time: what must not wait for something else is counted until that ends.
"""

import asyncio
import json
import resource
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from forerun.data.graph import Operator, OperatorGraph
from tests.coroutines import run
from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MOST_OPERATORS = 6_000
CONNECTIONS = 1_000
WATCHED = ("/healthz", "/readyz", "/metrics")
LIMITS = {
    "FORERUN_MAX_OPERATORS": str(MOST_OPERATORS),
    "FORERUN_REQUESTS_IN_FLIGHT": "100",
    "FORERUN_QUESTIONS_WAITING": "20",
}
MODEL = "/v1/predict/model?device=rtx-4090&precision=amp"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with real_server(tmp_path_factory.mktemp("load"), environment=LIMITS) as server:
        yield server


@pytest.fixture
def asked(server):
    with httpx.Client(base_url=server.url, timeout=600) as client:
        yield client


def chain(operators: int) -> bytes:
    """A network whose operators each read the one before."""
    shape = ((1, 8, 16, 16),)
    kinds = ("conv", "elementwise")
    made = [
        Operator(
            kinds[n % 2], kinds[n % 2], shape, shape, 576 * (1 - n % 2),
            {"kernel": (3, 3)} if n % 2 == 0 else {}, (n - 1,) if n else (),
        )
        for n in range(operators)
    ]  # fmt: skip
    return json.dumps(OperatorGraph(tuple(made)).to_json()).encode()


def question(batch_size: int) -> dict:
    workload = {"kind": "network", "graph": "resnet18", "batch_size": batch_size}
    return {"workload": workload, "device": "l4"}


def metric(asked, name: str) -> float:
    lines = asked.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_ordinary_questions_are_answered_while_the_largest_graph_is(asked):
    too_large = asked.post(MODEL, content=chain(MOST_OPERATORS + 1))
    assert too_large.status_code == 413
    assert "FORERUN_MAX_OPERATORS" in too_large.json()["detail"]
    content, address, answered = chain(MOST_OPERATORS), f"{asked.base_url}{MODEL}", 0
    with ThreadPoolExecutor(1) as elsewhere:
        upload = elsewhere.submit(httpx.post, address, content=content, timeout=600)
        while not upload.done():
            answered += 1
            assert asked.post("/v1/predict", json=question(answered)).status_code == 200
    assert upload.result().status_code == 200
    assert answered >= 10


def test_a_thousand_connections_are_answered_or_refused_and_then_all_is_well(server, asked):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 3 * CONNECTIONS:
        pytest.skip(f"a process may have {most} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    answers = run(_at_once(server.port))
    by_status = {status: [a for a in answers if a[0] == status] for status, _ in answers}
    assert set(by_status) == {200, 503}
    assert all(b"retry-after: 1" in header for _, header in by_status[503])
    assert asked.post("/v1/predict", json=question(1)).status_code == 200
    assert metric(asked, "forerun_work_in_progress") == 0


async def _at_once(port: int) -> list[tuple[int, bytes]]:
    """Status and header of the answer on each connection; health is asked meanwhile."""
    ready, release = asyncio.Semaphore(0), asyncio.Event()

    async def one(number: int) -> tuple[int, bytes]:
        body = json.dumps(question(1_000 + number)).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode())
        ready.release()
        await release.wait()
        writer.write(b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + body)
        answer = await reader.read()
        writer.close()
        return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[0].lower()

    all_of_them = [asyncio.ensure_future(one(number)) for number in range(CONNECTIONS)]
    for _ in all_of_them:
        await ready.acquire()
    release.set()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600) as watcher:
        for path in WATCHED:
            assert (await watcher.get(path)).status_code == 200
    return await asyncio.gather(*all_of_them)


def test_work_stops_when_its_client_leaves(server, asked):
    body = chain(MOST_OPERATORS)
    before = metric(asked, 'forerun_abandoned_total{reason="client left"}')
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        head = f"POST {MODEL}&batch_size=3 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        leaving.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: metric(asked, 'forerun_work_in_progress{lane="uploads"}') == 1)
    eventually(lambda: metric(asked, 'forerun_abandoned_total{reason="client left"}') == before + 1)
    eventually(lambda: metric(asked, 'forerun_work_in_progress{lane="uploads"}') == 0)
