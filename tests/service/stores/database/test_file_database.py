"""The database in FORERUN_HOME: made whole, kept by kills, filled from the files of before."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from forerun.data import file_store
from forerun.data.errors import CannotStore, DiskFull
from forerun.service.stores.database.connections import FileDatabase
from forerun.service.stores.database.store import Records
from forerun.service.stores.database.tables import DatabaseRefused
from forerun.service.stores.places import FILE, Place


def numbers(home: Path, **memory) -> Records[list[int]]:
    """The records of a folder, as one more process opens them."""

    def decode(name: str, content: bytes) -> list[int]:
        return list(json.loads(content))

    place = Place(home, "devices")
    if place.is_empty():
        return Records(place, json.dumps, decode, **memory)
    return Records(Place(FileDatabase(home), "devices"), json.dumps, decode, **memory)


@pytest.fixture
def old(tmp_path) -> Path:
    """A folder of a version that kept files."""
    (tmp_path / "devices").mkdir()
    (tmp_path / "tenants" / "one" / "keys").mkdir(parents=True)
    (tmp_path / "devices" / "a.json").write_text("[1]")
    (tmp_path / "devices" / "a.undone").write_text("")
    (tmp_path / "devices" / ".b.json.12.part").write_text("[")
    (tmp_path / "devices" / "c.json").write_bytes(b"\xff")
    (tmp_path / "tenants" / "one" / "keys" / "k.json").write_text("[3]")
    return tmp_path


def test_files_of_before_are_records_once_and_stay_as_they_are(old, capsys):
    assert numbers(old).values() == {"a.json": [1]}
    assert f'"{old / "devices" / "c.json"}"' in capsys.readouterr().err
    assert numbers(old).names() == {"a.json", "a.undone"}
    assert Records.of_texts(Place(old, "tenants/one/keys")).values() == {"k.json": "[3]"}
    numbers(old).delete("a.json")
    (old / "devices" / "d.json").write_text("[4]")
    assert numbers(old).values() == {}
    assert (old / "devices" / "a.json").read_text() == "[1]"


def test_files_of_before_are_read_where_nothing_can_be_written(old, monkeypatch):
    may = os.access
    monkeypatch.setattr(file_store.os, "access", lambda path, mode: mode & os.W_OK == 0)
    records = numbers(old)
    assert records.values() == {"a.json": [1]}
    with pytest.raises(CannotStore, match="Permission denied"):
        records.put("b.json", [2])
    assert not (old / FILE).exists()
    monkeypatch.setattr(file_store.os, "access", may)
    records.put("b.json", [2])
    assert numbers(old).values() == records.values() == {"a.json": [1], "b.json": [2]}


def test_nothing_is_made_by_who_only_reads(tmp_path):
    records = numbers(tmp_path / "home")
    assert records.values() == {}
    assert records.names() == frozenset()
    assert not records.is_used()
    assert not records.is_unchanged(-1)
    with pytest.raises(FileNotFoundError):
        records.get("a.json")
    assert list(tmp_path.iterdir()) == []
    numbers(tmp_path / "home").put("a.json", [1])
    assert records.is_used()
    assert records.values() == {"a.json": [1]}


def test_the_file_is_its_owners_and_whole_when_it_appears(tmp_path):
    threads = [Thread(target=lambda n=n: numbers(tmp_path).put(f"{n}.json", [n])) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert numbers(tmp_path).names() == {f"{n}.json" for n in range(6)}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_a_change_of_another_process_is_found_at_the_next_access(tmp_path):
    one, other = numbers(tmp_path), numbers(tmp_path)
    for value in ([1], [2], [3]):
        one.put("x.json", value)
        assert other.held("x.json") == other.get("x.json") == value


def test_a_file_in_place_of_another_one_is_read_anew_by_the_next_write(tmp_path):
    records = numbers(tmp_path)
    for value in range(3):
        records.put("a.json", [value])
    (tmp_path / FILE).unlink()
    another_process = Records.of_texts(Place(FileDatabase(tmp_path), "devices"))
    another_process.put("b.json", "[2]")
    records.put("c.json", [3])
    for each in (records, numbers(tmp_path)):
        assert each.values() == {"b.json": [2], "c.json": [3]}


def test_a_file_that_is_moved_away_is_missed_until_it_is_back(tmp_path):
    records = numbers(tmp_path)
    records.put("a.json", [1])
    database = records._database
    assert database.problem is None
    moved = (tmp_path / FILE).rename(tmp_path / "elsewhere")
    assert f"{FILE} in the folder FORERUN_HOME was moved or deleted" in str(database.problem)
    with pytest.raises(CannotStore, match="Put it back"):
        records.put("b.json", [2])
    assert (records.values(), moved.parent.joinpath(FILE).exists()) == ({"a.json": [1]}, False)
    moved.rename(tmp_path / FILE)
    records.put("b.json", [2])
    assert numbers(tmp_path).values() == {"a.json": [1], "b.json": [2]}


def test_a_full_disk_and_a_writer_that_does_not_end_are_said(tmp_path, monkeypatch):
    from sqlalchemy import text

    monkeypatch.setattr("forerun.service.stores.database.connections.LOCK_S", 0)
    records = numbers(tmp_path)
    records.put("a.json", [1])
    with FileDatabase(tmp_path).transaction(), pytest.raises(DatabaseRefused, match="other proc"):
        records.put("b.json", [2])
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    database = records._database
    with pytest.raises(DiskFull, match="is full"), database.transaction() as connection:
        from sqlalchemy.exc import OperationalError

        connection.execute(text("DELETE FROM forerun_records"))
        raise OperationalError("INSERT", {}, full)
    assert numbers(tmp_path).values() == {"a.json": [1]}


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(DatabaseRefused, match=rf"{FILE} cannot be used"):
        numbers(tmp_path)


COUNT_ON = """
import sys
from pathlib import Path
from tests.service.stores.database.test_file_database import numbers
store = numbers(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    with store.writing():
        before = store.values().get("count.json", [0])[0]
        store.put("count.json", [before + 1])
        store.put(f"{before + 1}.json", [before + 1])
    print(before + 1, flush=True)
"""


def counting(folder: Path, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COUNT_ON, str(folder), str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_exclude_each_other_while_they_write(tmp_path):
    with counting(tmp_path, 40) as one, counting(tmp_path, 40) as other:
        counted = [int(n) for p in (one, other) for n in p.stdout.read().split()]
    assert sorted(counted) == list(range(1, 81))
    assert numbers(tmp_path).get("count.json") == [80]


def test_a_kill_loses_nothing_acknowledged_and_frees_the_lock(tmp_path):
    with counting(tmp_path, 10**6) as process:
        counted = [int(process.stdout.readline()) for _ in range(5)]
        os.kill(process.pid, signal.SIGKILL)
        counted += [int(n) for n in process.stdout.read().split()]
    store = numbers(tmp_path)
    with store.writing():
        found = store.values()
    assert {f"{n}.json" for n in counted} <= set(found)
    assert found["count.json"][0] >= counted[-1]
