"""Durable files: atomic writes, and problems with a remedy."""

import errno
import os
from types import SimpleNamespace

import pytest

from forerun.data import file_store
from forerun.data.errors import CannotStore, DiskFull
from forerun.data.file_store import draft_of, obstacle, write_whole, writing_to


def test_an_error_leaves_what_was_there_and_no_draft(tmp_path):
    path = tmp_path / "x.txt"
    write_whole(path, "before")
    with pytest.raises(RuntimeError), draft_of(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_only_its_owner_may_read_a_file(tmp_path):
    write_whole(tmp_path / "x.json", "{}")
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
def test_a_disk_that_refuses_is_a_problem_with_a_remedy(code, kind, said):
    with pytest.raises(CannotStore, match=said) as raised, writing_to("FORERUN_HOME"):
        raise OSError(code, os.strerror(code))
    assert type(raised.value) is kind
    assert "FORERUN_HOME" in str(raised.value)


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
