"""The file store: atomic files, no acknowledged write lost, one writer at a time."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from forerun.data import file_store
from forerun.data.errors import CannotStore, DiskFull
from forerun.data.file_store import (
    ABANDONED_NS,
    CLOCK_STEP_NS,
    DamagedFile,
    FileStore,
    draft_of,
    obstacle,
    write_whole,
)


def store_of(folder: Path, report=lambda path, why: None, **memory) -> FileStore[list[int]]:
    def decode(name: str, content: bytes) -> list[int]:
        numbers = json.loads(content)["numbers"]
        return [int(number) for number in numbers]

    return FileStore(folder, lambda v: json.dumps({"numbers": v}), decode, report, **memory)


def settle(*paths: Path) -> None:
    """Make files look as if they had not changed for a minute."""
    for path in paths:
        then = path.stat().st_mtime_ns - 60 * 10**9
        os.utime(path, ns=(then, then))


def test_another_store_reads_what_was_put_and_what_replaced_it(tmp_path):
    one, other = store_of(tmp_path / "a" / "b"), store_of(tmp_path / "a" / "b")
    for value in ([1], [2], [3]):
        one.put("x.json", value)
        assert other.get("x.json") == one.get("x.json") == value
    assert other.values() == {"x.json": [3]}
    with pytest.raises(FileNotFoundError):
        other.get("y.json")


def test_a_settled_file_is_read_once_and_again_when_it_changes(tmp_path, monkeypatch):
    store = store_of(tmp_path)
    write_whole(tmp_path / "x.json", '{"numbers": [1]}')
    settle(tmp_path / "x.json")
    first = store.get("x.json")
    assert store.get("x.json") is first
    write_whole(tmp_path / "x.json", '{"numbers": [2]}')
    assert store.get("x.json") == [2]


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path, monkeypatch):
    store = store_of(tmp_path)
    path = tmp_path / "x.json"
    path.write_text('{"numbers": [1]}')
    facts = path.stat()
    monkeypatch.setattr(file_store, "time_ns", lambda: facts.st_mtime_ns + CLOCK_STEP_NS // 2)
    assert store.get("x.json") == [1]
    path.write_text('{"numbers": [2]}')
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_mtime_ns == facts.st_mtime_ns
    assert store.get("x.json") == [2], "equal size, time and number, and other content"


@pytest.mark.parametrize("damage", [b"", b'{"numbers": [1', b"[]", b"{}", b"\xff"])
def test_a_damaged_file_is_reported_once_left_out_and_replaced_by_put(tmp_path, damage):
    reported = []
    store = store_of(tmp_path, lambda path, why: reported.append(path.name))
    store.put("whole.json", [1])
    (tmp_path / "broken.json").write_bytes(damage)
    (tmp_path / "stray.txt").write_text("?")
    settle(tmp_path / "broken.json")
    assert store.values() == store.values() == {"whole.json": [1]}
    assert reported == ["broken.json"]
    with pytest.raises(DamagedFile, match=r"broken\.json"):
        store.get("broken.json")
    assert (tmp_path / "broken.json").read_bytes() == damage
    store.put("broken.json", [2])
    assert store_of(tmp_path).values() == {"broken.json": [2], "whole.json": [1]}


def test_memory_is_limited_by_weight_and_the_disk_holds_the_rest(tmp_path):
    store = store_of(tmp_path, weigh=len, room=5)
    for name, count in (("a.json", 2), ("b.json", 2), ("c.json", 1)):
        store.put(name, [0] * count)
    assert store.held("a.json") is not None
    store.put("d.json", [0])
    assert [store.held(f"{n}.json") is not None for n in "abcd"] == [True, False, True, True]
    store.put("large.json", [0] * 9)
    assert store.held("large.json") is not None, "the last one stays, however heavy"
    assert store.held("a.json") is None
    assert store.get("b.json") == [0, 0]


def test_the_stamp_changes_with_every_change_and_is_never_trusted_right_after_one(tmp_path):
    store = store_of(tmp_path / "folder")
    assert store.stamp() == 0
    assert store.is_unchanged(0)
    store.put("x.json", [1])
    assert store.stamp() == -1
    assert not store.is_unchanged(-1)
    settle(tmp_path / "folder")
    stamp = store.stamp()
    assert store.is_unchanged(stamp)
    store.mark("x.gone")
    assert not store.is_unchanged(stamp)
    assert store.names() == {"x.json", "x.gone"}


def test_an_error_leaves_what_was_there_and_no_draft(tmp_path):
    path = tmp_path / "x.txt"
    write_whole(path, "before")
    with pytest.raises(RuntimeError), draft_of(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_names_of_new_folders_are_on_disk_before_a_value_is(tmp_path, synced):
    store_of(tmp_path / "a" / "b").put("x.json", [1])
    paths = (tmp_path, tmp_path / "a", tmp_path / "a" / "b" / "x.json", tmp_path / "a" / "b")
    assert synced == [path.stat().st_ino for path in paths]


def test_only_its_owner_may_read_a_file(tmp_path):
    store_of(tmp_path).put("x.json", [1])
    assert (tmp_path / "x.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (errno.ENOSPC, DiskFull, "is full"),
        (errno.EDQUOT, DiskFull, "is full"),
        (errno.EROFS, CannotStore, "Read-only file system"),
        (errno.EACCES, CannotStore, "Permission denied"),
        (errno.EIO, CannotStore, "Input/output error"),
    ],
)
def test_a_disk_that_refuses_is_a_problem_with_a_remedy(tmp_path, monkeypatch, code, kind, said):
    store = store_of(tmp_path)
    store.put("x.json", [1])
    refusing = Mock(side_effect=OSError(code, os.strerror(code)))
    monkeypatch.setattr(file_store.os, "fsync", refusing)
    for write in (
        lambda: store.put("x.json", [2]),
        lambda: store.put("y.json", [2]),
        lambda: store.mark("x.gone"),
    ):
        with pytest.raises(CannotStore, match=said) as raised:
            write()
        assert type(raised.value) is kind
        assert "FORERUN_HOME" in str(raised.value)
    assert store_of(tmp_path).values() == {"x.json": [1]}
    assert store.names() == {"x.json"}, "no draft is left behind"


def test_a_file_in_place_of_the_folder_counts_as_empty_and_is_reported_once(tmp_path):
    reported = []
    (tmp_path / "folder").write_text("?")
    for folder in (tmp_path / "folder", tmp_path / "folder" / "below"):
        store = store_of(folder, lambda path, why: reported.append(path))
        assert store.values() == store.values() == {}
        assert store.stamp() >= -1
        assert store.held("x.json") is None
        assert not store.delete("x.json")
        with pytest.raises(FileNotFoundError):
            store.get("x.json")
        with pytest.raises(CannotStore, match="there is a file where a folder should be"):
            store.put("x.json", [1])
        with pytest.raises(CannotStore), store.writing():
            raise AssertionError
    assert reported == [tmp_path / "folder", tmp_path / "folder" / "below"]


def test_a_file_that_cannot_be_read_is_damaged(tmp_path):
    reported = []
    store = store_of(tmp_path, lambda path, why: reported.append(path.name))
    store.put("whole.json", [1])
    (tmp_path / "folder.json").mkdir()
    assert store.values() == store.values() == {"whole.json": [1]}
    assert reported == ["folder.json"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    store = store_of(tmp_path)
    os.mkfifo(tmp_path / "one.json")
    with pytest.raises(DamagedFile, match="not a regular file"):
        store.get("one.json")


def test_damage_is_reported_again_after_a_repair(tmp_path):
    reported = []
    store = store_of(tmp_path, lambda path, why: reported.append(path.name))
    for _ in range(2):
        write_whole(tmp_path / "x.json", "{")
        assert store.values() == store.values() == {}
        store.put("x.json", [1])
    assert reported == ["x.json", "x.json"]


def test_what_is_deleted_is_gone_for_every_store_and_frees_its_room(tmp_path):
    one, other = (store_of(tmp_path, weigh=len, room=3) for _ in range(2))
    one.put("x.json", [1, 2])
    assert other.get("x.json") == [1, 2]
    assert one.delete("x.json")
    assert not one.delete("x.json")
    for store in (one, other):
        assert store.held("x.json") is None
        assert store.values() == {}
        with pytest.raises(FileNotFoundError):
            store.get("x.json")
    one.put("y.json", [1])
    one.put("z.json", [1, 2])
    assert one.held("y.json") == [1], "the deleted one takes no room"


def test_a_deletion_is_on_disk_when_it_returns(tmp_path, monkeypatch):
    synced = []
    store = store_of(tmp_path)
    store.put("x.json", [1])
    monkeypatch.setattr(file_store.os, "fsync", lambda at: synced.append(os.fstat(at).st_ino))
    store.delete("x.json")
    assert synced == [tmp_path.stat().st_ino]


def test_drafts_of_killed_processes_are_deleted_but_not_those_in_use(tmp_path):
    old, new = tmp_path / ".x.json.a1.part", tmp_path / ".x.json.b2.part"
    for draft in (old, new):
        draft.write_text("half")
    then = old.stat().st_mtime_ns - 2 * ABANDONED_NS
    os.utime(old, ns=(then, then))
    with store_of(tmp_path).writing():
        assert not old.exists()
        assert new.exists()


def test_obstacles_are_found_without_a_write(tmp_path, monkeypatch):
    def statvfs(free_bytes=2**30, names=(100, 50), flags=0):
        facts = os.statvfs(tmp_path)
        fields = dict(zip("f_files f_favail".split(), names, strict=True))
        fields |= {"f_bavail": free_bytes // facts.f_frsize, "f_frsize": facts.f_frsize}
        return SimpleNamespace(f_flag=flags, **fields)

    assert obstacle(tmp_path / "not" / "yet", "X") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("?")
    assert "a file where" in str(obstacle(tmp_path / "file" / "below", "X"))
    for facts in (statvfs(free_bytes=0), statvfs(names=(100, 0))):
        monkeypatch.setattr(file_store.os, "statvfs", lambda path, facts=facts: facts)
        assert type(obstacle(tmp_path, "X")) is DiskFull
    for facts in (statvfs(), statvfs(names=(0, 0))):
        monkeypatch.setattr(file_store.os, "statvfs", lambda path, facts=facts: facts)
        assert obstacle(tmp_path, "X") is None, "some file systems count no names"
    monkeypatch.setattr(file_store.os, "access", lambda path, mode: False)
    assert "Permission denied" in str(obstacle(tmp_path, "X"))
    read_only = statvfs(flags=os.ST_RDONLY)
    monkeypatch.setattr(file_store.os, "statvfs", lambda path: read_only)
    assert "Read-only" in str(obstacle(tmp_path, "X"))


COUNT_ON = """
import sys
from pathlib import Path
from tests.data.test_file_store import store_of
store = store_of(Path(sys.argv[1]))
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
    assert store_of(tmp_path).get("count.json") == [80]


def test_a_kill_loses_nothing_acknowledged_and_frees_the_lock(tmp_path):
    with counting(tmp_path, 10**6) as process:
        counted = [int(process.stdout.readline()) for _ in range(5)]
        os.kill(process.pid, signal.SIGKILL)
        counted += [int(n) for n in process.stdout.read().split()]
    store = store_of(tmp_path)
    with store.writing():
        found = store.values()
    assert {f"{n}.json" for n in counted} <= set(found)
    assert found["count.json"][0] >= counted[-1]
