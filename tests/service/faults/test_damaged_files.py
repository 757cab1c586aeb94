"""Damaged files of every store: never a 5xx, named in the log once, mended by what is given again.

One server is started on a folder in which each store holds a damaged file of every kind.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from forerun.data.graph import OperatorGraph
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import AdaptationStore
from forerun.training.leaderboard.entries import FORMAT
from tests.service.faults.asking import Asking, graph
from tests.service.real_server import RealServer, real_server

pytestmark = pytest.mark.slow

DAMAGE = {
    "empty": b"",
    "truncated": b'{"format": "forerun.',
    "garbage": b"\xff\x00" * 50,
    "of-another-type": b"[1, 2]",
    "nested": b"[" * 100_000,
}
ENTRY = {
    "dataset": "toy",
    "task": "unseen_device/x",
    "metric": "latency_ms",
    "predictor": "mine",
    "kind": "ours",
    "score": "mape",
    "value": 10.0,
    "digest": "a" * 64,
}
WRONG_ENTRIES = ({"value": "ten"}, {"dataset": 3}, {"value": float("nan")}, {"kind": "theirs"})
FOLDERS = ("devices", "measurements", "leaderboard")
"""Folders that are read as a whole; a graph is read when it is asked for."""


@dataclass(frozen=True)
class Damaged:
    """A running server, a client of it, and its damaged files."""

    server: RealServer
    ask: Asking
    home: Path
    files: tuple[Path, ...]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    files = []
    for folder in FOLDERS:
        (home / folder).mkdir()
        for how, content in DAMAGE.items():
            files.append(home / folder / f"{how}.json")
            files[-1].write_bytes(content)
        files.append(home / folder / "unreadable.json")
        files[-1].mkdir()
    for number, change in enumerate(WRONG_ENTRIES):
        files.append(home / "leaderboard" / f"{number}.json")
        content = {"format": FORMAT, "sitting": {}, "entries": [ENTRY | change]}
        files[-1].write_text(json.dumps(content))
    right = {"format": FORMAT, "sitting": {}, "entries": [ENTRY]}
    (home / "leaderboard" / "right.json").write_text(json.dumps(right))
    with real_server(home) as server, Asking(server.url) as ask:
        yield Damaged(server, ask, home, tuple(files))


def test_everything_is_answered_and_each_file_is_named_in_the_log_once(damaged):
    for _ in range(2):
        damaged.ask.answers()
        damaged.ask("PUT", "/v1/devices/l4", {})  # refused, and changes nothing
    (row,) = damaged.ask("GET", "/v1/leaderboard?dataset=toy").json()["entries"]
    assert row["value"] == 10.0
    printed = damaged.server.log.read_text()
    named = {path: printed.count(f'"{path}"') for path in damaged.files}
    assert set(named.values()) == {1}, named
    assert all(path.exists() for path in damaged.files), "what may be of use is kept"


@pytest.mark.parametrize("how", DAMAGE)
def test_a_graph_is_mended_when_it_is_uploaded_again(damaged, how):
    number = list(DAMAGE).index(how)
    digest = damaged.ask.put_graph(number).json()["digest"]
    path = damaged.home / "graphs" / f"{digest}.json"
    other = json.dumps(OperatorGraph.from_json(graph(number + 100)).to_json()).encode()
    for content in (DAMAGE[how], other):
        path.write_bytes(content)
        assert damaged.ask.put_graph(number).status_code == 201
        assert GraphStore(path.parent, 1).get(digest).digest == digest
    path.write_bytes(DAMAGE[how])
    assert damaged.ask("DELETE", f"/v1/graphs/{digest}").status_code == 204
    assert damaged.ask("GET", f"/v1/graphs/{digest}").status_code == 404


@pytest.mark.parametrize("how", DAMAGE)
def test_a_sheet_is_mended_when_it_is_registered_again(damaged, how):
    assert damaged.ask("GET", f"/v1/devices/{how}").status_code == 404
    assert damaged.ask.put_device(how).status_code == 200
    assert damaged.ask("GET", f"/v1/devices/{how}").json()["name"] == how
    assert DeviceStore(damaged.home / "devices").catalog.get(how).name == how


def test_measurements_of_a_damaged_file_can_be_given_again(damaged):
    first = damaged.ask.put_rows(64).json()["set"]
    (damaged.home / "measurements" / f"l4.{first}.json").write_bytes(DAMAGE["truncated"])
    assert damaged.ask("GET", "/v1/devices/l4/measurements").json()["sets"] == []
    again = damaged.ask.put_rows(64)
    assert again.status_code == 201
    (stored,) = AdaptationStore(damaged.home / "measurements").live("l4")
    assert stored.id == again.json()["set"]
