"""Durable files: atomic writes, and clear errors on full disks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, EEXIST, EFBIG, ENOSPC, ENOTDIR, EROFS
from pathlib import Path
from secrets import token_hex
from time import time_ns
from typing import Final

from forerun.data.errors import CannotStore, DiskFull

Signature = tuple[int, int, int] | None
"""Inode, size in bytes and modification time of a file, which differ for every write; None for a
file that changed so recently that it may change again within the same timestamp."""

CLOCK_STEP_NS = 50_000_000
"""Longer than the resolution of file timestamps, so that two changes never share a timestamp."""
DRAFT_SUFFIX = ".part"

HOME: Final = "FORERUN_HOME"
TEMPORARY: Final = "TMPDIR"
LEAST_FREE_BYTES: Final = 2**16
"""Free space below which a disk counts as full; many operator graphs need more."""
_NO_ROOM: Final = frozenset({ENOSPC, EDQUOT, EFBIG})
_NO_FOLDER: Final = frozenset({EEXIST, ENOTDIR})


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically and durably; only its owner may read it.

    Raises:
        OSError: the file cannot be written; the previous file remains.
    """
    with draft_of(path) as draft:
        draft.touch(mode=0o600)
        draft.write_text(text, encoding="utf-8")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A path to write to, which replaces `path` when the block ends without an error.

    The replacement is atomic, and afterwards content and name of the file are on disk. After an
    error the draft is deleted.
    """
    draft = path.with_name(f".{path.name}.{token_hex(6)}{DRAFT_SUFFIX}")
    try:
        yield draft
        synced(draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    synced(path.parent)


def signature_of(path: Path) -> Signature:
    """The current signature of a file.

    Raises:
        OSError: it cannot be examined.
    """
    facts = path.stat()
    if time_ns() - facts.st_mtime_ns <= CLOCK_STEP_NS:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def synced(path: Path) -> None:
    """Flush a file, or the entries of a folder; flushing files does not flush their folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing_to(variable: str, done: str = "stored") -> Iterator[None]:
    """Turn operating system errors in the block into problems with a remedy.

    Args:
        variable: environment variable of the folder that the block writes to.
        done: past participle of what the block does, for the message.

    Raises:
        DiskFull: the disk or the user's quota is full.
        CannotStore: it cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        raise disk_problem(error, variable, done) from error


def disk_problem(error: OSError, variable: str, done: str = "stored") -> CannotStore:
    """The problem to report for an operating system error while writing to a folder.

    Args:
        error: the error.
        variable: environment variable of the folder.
        done: past participle of what was to be done, for the message.
    """
    if error.errno in _NO_ROOM:
        return DiskFull(
            f"Nothing was {done}: the disk of the folder {variable} is full. Free some space "
            "there; questions are answered meanwhile."
        )
    why = error.strerror or type(error).__name__
    if error.errno in _NO_FOLDER:
        why = "there is a file where a folder should be"
    return CannotStore(
        f"Nothing was {done}: the folder {variable} cannot be written ({why}). Make it writable, "
        "or let the variable name another folder; questions are answered meanwhile."
    )


def obstacle(folder: Path, variable: str) -> CannotStore | None:
    """What would prevent writing a file to a folder, which need not exist yet.

    The check writes nothing, so it does not notice quotas and disk faults.

    Args:
        folder: the folder.
        variable: its environment variable.

    Returns:
        The problem; None if none is known.
    """
    try:
        place = next(place for place in (folder, *folder.parents) if place.exists())
        disk = os.statvfs(place)
    except OSError as error:
        return disk_problem(error, variable)
    if not place.is_dir():
        return disk_problem(OSError(ENOTDIR, os.strerror(ENOTDIR)), variable)
    if not os.access(place, os.W_OK | os.X_OK):
        code = EROFS if disk.f_flag & os.ST_RDONLY else EACCES
        return disk_problem(OSError(code, os.strerror(code)), variable)
    no_names = disk.f_files > 0 and disk.f_favail == 0
    if no_names or disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
        return disk_problem(OSError(ENOSPC, os.strerror(ENOSPC)), variable)
    return None
