"""A server that is killed while it stores what clients send loses nothing that it acknowledged.

FORERUN_KILL_ROUNDS says how many times it is killed, by default 2:

    FORERUN_KILL_ROUNDS=50 python -m pytest -s tests/service/faults/test_kills.py
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Timer

import httpx
import pytest

from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import AdaptationStore
from forerun.service.stores.places import Place
from tests.service.conftest import linear_row
from tests.service.faults.asking import Asking
from tests.service.real_server import RealServer, real_server

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("FORERUN_KILL_ROUNDS", "2"))
MOST_ACKNOWLEDGED = 60
"""Acknowledgements after which a server is killed at the latest."""


def ingest(server: RealServer, numbers: "count[int]", enough: int) -> dict[str, set[str]]:
    """Store graphs, devices and measurements at once until the server is killed.

    Args:
        server: a server, which is killed after `enough` acknowledgements.
        numbers: a number of its own for every write.
        enough: number of acknowledgements.

    Returns:
        Kind of write -> what was acknowledged.
    """
    acknowledged: dict[str, set[str]] = {"graphs": set(), "devices": set(), "measurements": set()}

    def write(kind: str, send: Callable[[Asking, int], httpx.Response], field: str) -> None:
        with Asking(server.url) as ask, suppress(httpx.TransportError):
            while server.runs:
                answer = send(ask, next(numbers))
                assert answer.is_success, answer.text
                acknowledged[kind].add(answer.json()[field])
                if sum(map(len, acknowledged.values())) >= enough:
                    server.kill()

    with ThreadPoolExecutor(4) as pool:
        writers = [
            pool.submit(write, "graphs", lambda ask, n: ask.put_graph(n), "digest"),
            pool.submit(write, "graphs", lambda ask, n: ask.put_graph(n), "digest"),
            pool.submit(write, "devices", lambda ask, n: ask.put_device(f"card-{n}"), "name"),
            pool.submit(write, "measurements", lambda ask, n: ask.put_rows(n), "set"),
        ]
        for writer in writers:
            writer.result()
    return acknowledged


def stored(home: Path) -> dict[str, set[str]]:
    """Kind of write -> what the folder holds."""
    graphs = GraphStore(Place(home) / "graphs", 1)
    names = Records.of_texts(Place(home) / "graphs").names()
    digests = [name.removesuffix(".json") for name in names]
    return {
        "graphs": {graphs.get(digest).digest for digest in digests},
        "devices": set(DeviceStore(Place(home) / "devices").catalog.names()),
        "measurements": {each.id for each in AdaptationStore(Place(home) / "measurements").live()},
    }


def test_nothing_acknowledged_is_lost(tmp_path, roofline_folder):
    chance, numbers = random.Random(0), count(1)
    acknowledged: dict[str, set[str]] = {}
    variables = {"FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}
    for _ in range(ROUNDS):
        with real_server(tmp_path, environment=variables) as server:
            enough = chance.randint(1, MOST_ACKNOWLEDGED)
            for kind, names in ingest(server, numbers, enough).items():
                acknowledged[kind] = acknowledged.get(kind, set()) | names
        found = stored(tmp_path)
        lost = {kind: names - found[kind] for kind, names in acknowledged.items()}
        assert not any(lost.values()), lost
    sums = {kind: (len(names), len(names & found[kind])) for kind, names in acknowledged.items()}
    print(f"{ROUNDS} kills; acknowledged and found: {sums}")
    assert acknowledged["graphs"]


PATH = "/v1/devices/l4/measurements"


def test_every_request_is_stored_once_however_often_its_server_dies(tmp_path, roofline_folder):
    chance, waiting = random.Random(0), list(range(60))
    acknowledged: dict[int, bytes] = {}
    variables = {"FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}
    for life in range(ROUNDS + 1):
        with real_server(tmp_path / "home", workers=2, environment=variables) as server:
            if life < ROUNDS:
                Timer(chance.uniform(0.05, 0.5), server.kill).start()
            # Also what was acknowledged is sent again, and has the same answer.
            for number in [*acknowledged, *waiting]:
                rows = [linear_row(64 + number, 0.02 + number / 1e4)]
                body = {"measurements": rows, "source": "observe"}
                with suppress(httpx.TransportError):
                    answer = httpx.post(
                        server.url + PATH, json=body, headers={"Idempotency-Key": f"n{number}"}
                    )
                    assert answer.status_code == 201, answer.text
                    assert acknowledged.setdefault(number, answer.content) == answer.content
            waiting = [number for number in waiting if number not in acknowledged]
            if life < ROUNDS:
                server.wait()
    assert sorted(acknowledged) == list(range(60))
    stored = AdaptationStore(Place(tmp_path / "home") / "measurements").sets("l4", "observe")
    counts = Counter(each.request.key for each in stored if each.request is not None)
    assert counts == {f"n{number}": 1 for number in range(60)}
