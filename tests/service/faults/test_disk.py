"""A disk that is read-only, full, and neither: answers go on, and writes say what to mend.

One server is started on a small file system of its own, which is read-only at first.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from forerun.data.graph import OperatorGraph
from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import AdaptationStore
from forerun.service.stores.places import Place
from forerun.training.leaderboard.entries import FORMAT
from tests.service.faults.asking import Asking, graph
from tests.service.real_server import RealServer, real_server

pytestmark = pytest.mark.slow
SIZE_KIB = 1024


def mount(place: Path, options: str) -> None:
    """Mount a file system in memory, or change how it is mounted.

    Raises:
        subprocess.CalledProcessError: this user may not.
    """
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    place = tmp_path_factory.mktemp("disk")
    try:
        mount(place, f"size={SIZE_KIB}k,ro")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this user may not mount a file system: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(scope="module")
def ask(disk):
    with real_server(disk) as server, Asking(server.url) as ask:
        yield ask


@pytest.fixture
def writable(disk, ask):
    """The disk, which can be written."""
    mount(disk, f"remount,size={SIZE_KIB}k,rw")
    return disk


def fill(disk: Path) -> Path:
    """Fill a disk with one file."""
    path = disk / "filler"
    with pytest.raises(OSError, match="No space"), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def stored(disk: Path) -> dict[str, frozenset[str]]:
    """Names of the records of each store."""
    stores = ("graphs", "devices", "measurements")
    return {name: Records.of_texts(Place(disk) / name).names() for name in stores}


def test_a_read_only_folder_prevents_neither_the_start_nor_answers(ask):
    storing, why = ask.storing()
    assert not storing
    assert "Read-only file system" in why
    assert ask.writes() == {"graph": 503, "device": 503, "measurement": 503}
    ask.answers()
    assert ask("DELETE", "/v1/devices/unheard-of").status_code == 404


def test_it_stores_as_soon_as_the_disk_can_be_written(ask, writable):
    assert ask.storing() == (True, None)
    assert ask.writes() == {"graph": 201, "device": 200, "measurement": 201}
    ask.answers()


def test_a_full_disk_refuses_writes_alone_until_there_is_room(ask, writable):
    before = stored(writable)
    filler = fill(writable)
    storing, why = ask.storing()
    assert not storing
    assert "is full" in why
    refused = (ask.put_graph(7), ask.put_device("another"), ask.put_rows(77, "t4"))
    assert [answer.status_code for answer in refused] == [507] * 3
    ask.answers()
    assert [path for path in writable.rglob("*") if path.name.endswith(".part")] == []
    filler.unlink()
    assert stored(writable) == before
    assert ask.storing() == (True, None)
    again = (ask.put_graph(7), ask.put_device("another"), ask.put_rows(77, "t4"))
    assert [answer.status_code for answer in again] == [201, 200, 201]


def test_what_is_stored_is_not_deleted_from_a_read_only_disk(ask, writable, disk):
    digest = ask.put_graph(8).json()["digest"]
    assert ask.put_device("my-card").status_code == 200
    mount(disk, "remount,ro")
    refused = ask("DELETE", f"/v1/graphs/{digest}")
    assert (refused.status_code, "Read-only file system" in refused.text) == (503, True)
    assert ask("DELETE", "/v1/devices/my-card").status_code == 503
    assert ask("GET", f"/v1/graphs/{digest}").status_code == 200
    assert ask("GET", "/v1/devices/my-card").status_code == 200


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
    files.append(home / "leaderboard" / "unreadable.json")
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
    named = {p: printed.count(f'{p.relative_to(damaged.home)}"') for p in damaged.files}
    assert set(named.values()) == {1}, named
    assert all(path.exists() for path in damaged.files), "what may be of use is kept"


@pytest.mark.parametrize("how", DAMAGE)
def test_a_graph_is_mended_when_it_is_uploaded_again(damaged, how):
    number = list(DAMAGE).index(how)
    digest = damaged.ask.put_graph(number).json()["digest"]
    place, name = Place(damaged.home) / "graphs", f"{digest}.json"
    other = json.dumps(OperatorGraph.from_json(graph(number + 100)).to_json())
    damage = DAMAGE[how].decode("latin-1")
    for content in (damage, other):
        Records.of_texts(place).put(name, content)
        assert damaged.ask.put_graph(number).status_code == 201
        assert GraphStore(place, 1).get(digest).digest == digest
    Records.of_texts(place).put(name, damage)
    assert damaged.ask("DELETE", f"/v1/graphs/{digest}").status_code == 204
    assert damaged.ask("GET", f"/v1/graphs/{digest}").status_code == 404


@pytest.mark.parametrize("how", DAMAGE)
def test_a_sheet_is_mended_when_it_is_registered_again(damaged, how):
    assert damaged.ask("GET", f"/v1/devices/{how}").status_code == 404
    assert damaged.ask.put_device(how).status_code == 200
    assert damaged.ask("GET", f"/v1/devices/{how}").json()["name"] == how
    assert DeviceStore(Place(damaged.home) / "devices").catalog.get(how).name == how


def test_measurements_of_a_damaged_file_can_be_given_again(damaged):
    first = damaged.ask.put_rows(64).json()["set"]
    texts = Records.of_texts(Place(damaged.home) / "measurements")
    texts.put(f"l4.{first}.json", "{")
    assert damaged.ask("GET", "/v1/devices/l4/measurements").json()["sets"] == []
    again = damaged.ask.put_rows(64)
    assert again.status_code == 201
    (stored,) = AdaptationStore(Place(damaged.home) / "measurements").live("l4")
    assert stored.id == again.json()["set"]
