"""CPU that the server needs for a request, over that of a bare FastAPI endpoint.

Both run on the same server in a process of its own. The endpoint returns a constant to the same
requests.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.benchmarks.models import LIGHT
from tests.service.real_server import real_server

LIMITS = {
    "cached_answer_over_bare": ("<", 1.8),
    "new_latency_over_bare": ("<", 10.0),
    "new_memory_over_bare": ("<", 14.0),
    "new_answer_over_bare": ("<", 24.0),
}
ROUNDS, REQUESTS = 5, 300
BARE = """
import socket, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/")
async def constant():
    return {"a": 1}
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, log_level="warning", access_log=False)
uvicorn.Server(config).run(sockets=[listener])
"""
METRICS = {
    "new_latency_over_bare": ["latency_ms"],
    "new_memory_over_bare": ["peak_memory_mib"],
    "new_answer_over_bare": None,
}


def figures() -> dict[str, float]:
    """Ratio of each request to the bare endpoint, and the milliseconds of each; least of rounds."""
    with (
        tempfile.TemporaryDirectory() as home,
        real_server(Path(home)) as server,
        bare_endpoint() as (port, pid),
    ):
        content = (LIGHT / "light_resnet50.onnx").read_bytes()
        digest = httpx.post(f"{server.url}/v1/graphs", content=content).json()["digest"]
        sizes = itertools.count(2)
        bare, url = f"http://127.0.0.1:{port}/", f"{server.url}/v1/predict"
        times: dict[str, list[float]] = {}
        for _ in range(ROUNDS + 1):
            same = [_question(digest, 1)] * REQUESTS
            times.setdefault("bare", []).append(cpu_ms([pid], bare, same))
            times.setdefault("cached_answer_over_bare", []).append(cpu_ms(server.pids(), url, same))
            for name, metrics in METRICS.items():
                new = [_question(digest, next(sizes), metrics) for _ in range(REQUESTS)]
                times.setdefault(name, []).append(cpu_ms(server.pids(), url, new))
    least = {name: min(own[1:]) for name, own in times.items()}
    ratios = {name: ms / least["bare"] for name, ms in least.items() if name != "bare"}
    spent = {f"{name.removesuffix('_over_bare')}_cpu_ms": ms for name, ms in least.items()}
    return ratios | spent


@contextmanager
def bare_endpoint() -> Iterator[tuple[int, int]]:
    """Port and process of the bare endpoint."""
    process = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


def cpu_ms(pids: Sequence[int], url: str, bodies: Sequence[bytes], *, warm: bool = True) -> float:
    """CPU milliseconds of these processes for each of the requests, on one connection.

    Args:
        pids: processes of the server.
        url: where the requests go.
        bodies: a body of JSON for each request.
        warm: whether the first one is asked once before, which is not counted.
    """
    headers = {"Content-Type": "application/json"}
    with httpx.Client(headers=headers) as client:
        if warm:
            client.post(url, content=bodies[0]).raise_for_status()
            time.sleep(0.1)
        before = _spent_ns(pids)
        for body in bodies:
            client.post(url, content=body).raise_for_status()
        return (_spent_ns(pids) - before) / len(bodies) / 1e6


def _spent_ns(pids: Sequence[int]) -> int:
    """CPU time of all threads of these processes, nanoseconds."""
    threads = [each for pid in pids for each in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads)


def _question(digest: str, batch_size: int, metrics: list[str] | None = None) -> bytes:
    network = {"kind": "network", "graph": digest, "batch_size": batch_size, "precision": "amp"}
    asked = {"workload": network, "device": "rtx-4090"}
    return json.dumps(asked | ({"metrics": metrics} if metrics else {})).encode()
