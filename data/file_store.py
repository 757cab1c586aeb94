"""Durable storage of values: atomic writes, one file per value, and clear errors on full disks."""

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, EEXIST, EFBIG, ENOSPC, ENOTDIR, EROFS
from pathlib import Path
from secrets import token_hex
from threading import Lock
from time import time_ns
from typing import Final, Generic, TypeVar

from forerun.data.errors import CannotStore, DiskFull

Value = TypeVar("Value")
Signature = tuple[int, int, int] | None
"""Inode, size in bytes and modification time of a file, which differ for every write; None for a
file that changed so recently that it may change again within the same timestamp."""

SUFFIX = ".json"
CLOCK_STEP_NS = 50_000_000
"""Longer than the resolution of file timestamps, so that two changes never share a timestamp."""
DRAFT_SUFFIX = ".part"
ABANDONED_NS = 3_600 * 10**9
"""Age at which a draft is attributed to a process that was killed."""

HOME: Final = "FORERUN_HOME"
TEMPORARY: Final = "TMPDIR"
LEAST_FREE_BYTES: Final = 2**16
"""Free space below which a disk counts as full; many operator graphs need more."""
_NO_ROOM: Final = frozenset({ENOSPC, EDQUOT, EFBIG})
_NO_FOLDER: Final = frozenset({EEXIST, ENOTDIR})


class DamagedFile(ValueError):
    """A file does not hold what its store wrote."""


class FileStore(Generic[Value]):
    """Values in one folder, one JSON file each, shared by any number of threads and processes.

    When `put` has returned, a value survives a kill of the process and a power failure. Readers see
    a file either as it was before a write or as it is after it. A file that cannot be read or
    decoded is reported and skipped, but left in place, so that it affects no other file; `put`
    replaces it. A folder that cannot be read counts as empty.

    Args:
        folder: folder of the files, below FORERUN_HOME; created by the first write.
        encode: function from a value to the text of its file.
        decode: function from the name and the bytes of a file to its value; any `Exception` that it
            raises means that the file is damaged.
        report: called with the path and the reason when a file is found damaged; once, until the
            file is repaired or damaged in another way.
        weigh: memory cost of a value; by default zero, so that all values stay in memory.
        room: largest sum of weights in memory. The least recently used values are evicted first and
            read again on demand; the last one stays, however heavy it is.
    """

    def __init__(
        self,
        folder: Path,
        encode: Callable[[Value], str],
        decode: Callable[[str, bytes], Value],
        report: Callable[[Path, Exception], None] = lambda path, why: None,
        weigh: Callable[[Value], int] = lambda value: 0,
        room: int = 0,
    ) -> None:
        self._folder, self._encode, self._decode = folder, encode, decode
        self._report, self._weigh, self._room = report, weigh, room
        self._held: OrderedDict[str, tuple[Signature, Value]] = OrderedDict()
        self._damaged: dict[str, str] = {}
        self._memory, self._disk = Lock(), Lock()
        self._is_swept = False

    def is_used(self) -> bool:
        """Whether the folder exists, or something prevents examining it."""
        try:
            self._folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def stamp(self) -> int:
        """A number that changes when any process changes a file; -1 right after a change.

        It is 0 as long as there is no readable folder.
        """
        try:
            stamp = self._folder.stat().st_mtime_ns
        except OSError:
            return 0
        # A folder that changed very recently may change again within the same timestamp.
        return stamp if time_ns() - stamp > CLOCK_STEP_NS else -1

    def is_unchanged(self, stamp: int) -> bool:
        """Whether no file was added, replaced or deleted since `stamp()` returned this number."""
        return stamp == self.stamp() >= 0

    def names(self) -> frozenset[str]:
        """Names of all files in the folder, including damaged ones."""
        try:
            names = frozenset(os.listdir(self._folder))  # noqa: PTH208
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            self._report_once("", error)
            return frozenset()
        self._damaged.pop("", None)
        return names

    def values(self) -> dict[str, Value]:
        """Values by file name, in the order of the names; damaged files are skipped."""
        found = {}
        for name in sorted(self.names()):
            if name.endswith(SUFFIX):
                with suppress(FileNotFoundError, DamagedFile):
                    found[name] = self.get(name)
        return found

    def held(self, name: str) -> Value | None:
        """The value if it is in memory and its file still exists; the file is not read."""
        with self._memory:
            if name not in self._held:
                return None
            self._held.move_to_end(name)
            value = self._held[name][1]
        return value if os.path.exists(f"{self._folder}/{name}") else None  # noqa: PTH110

    def get(self, name: str) -> Value:
        """The value of a file, from memory if the file has not changed since it was read.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedFile: the file cannot be read, or does not hold a value.
        """
        path = self._folder / name
        try:
            signature = signature_of(path)
            with self._memory:
                held = self._held.get(name)
                if held is not None and held[0] == signature is not None:
                    self._held.move_to_end(name)
                    return held[1]
            if not stat.S_ISREG(path.stat().st_mode):
                raise OSError("it is not a regular file")  # reading a pipe would block
            value = self._decode(name, path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(name) from None
        except Exception as error:
            self._report_once(name, error)
            raise DamagedFile(f"{name} is damaged: {error}") from error
        self._remember(name, signature, value)
        return value

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude all other writers, in this and in other processes, during the block.

        Read everything that a write depends on, such as the number of files, inside the block. On
        file systems without locks, writers of other processes are not excluded.

        Raises:
            CannotStore: the folder cannot be created.
        """
        import fcntl

        with self._disk, writing_to(HOME):
            _make_folder(self._folder)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                with suppress(OSError):
                    fcntl.flock(folder, fcntl.LOCK_EX)
                self._sweep()
                yield
            finally:
                os.close(folder)

    def put(self, name: str, value: Value) -> None:
        """Write a value, replacing any value of that name.

        Raises:
            DiskFull, CannotStore: it could not be written; what was stored before remains.
        """
        path = self._folder / name
        with writing_to(HOME):
            _make_folder(self._folder)
            write_whole(path, self._encode(value))
            signature = signature_of(path)
        self._remember(name, signature, value)

    def mark(self, name: str) -> None:
        """Write an empty file whose name is its whole content; repeating it has no effect.

        Raises:
            DiskFull, CannotStore: it could not be written.
        """
        with writing_to(HOME):
            write_whole(self._folder / name, "")

    def delete(self, name: str) -> bool:
        """Delete a file, whether or not it holds a value; the deletion survives a power failure.

        Returns:
            Whether there was such a file.

        Raises:
            CannotStore: it could not be deleted.
        """
        path = self._folder / name
        if not path.exists():
            return False
        with writing_to(HOME, "deleted"):
            path.unlink(missing_ok=True)
            _sync(self._folder)
        with self._memory:
            self._forget(name)
        return True

    def _report_once(self, name: str, why: Exception) -> None:
        """Report a damaged file, or the whole folder if the name is empty."""
        if self._damaged.get(name) != str(why):
            self._damaged[name] = str(why)
            self._report(self._folder / name, why)

    def _sweep(self) -> None:
        """Delete drafts of killed processes, once, while no other process writes."""
        if self._is_swept:
            return
        self._is_swept = True
        before = time_ns() - ABANDONED_NS
        for name in self.names():
            path = self._folder / name
            with suppress(OSError):
                if name.endswith(DRAFT_SUFFIX) and path.stat().st_mtime_ns < before:
                    path.unlink()

    def _forget(self, name: str) -> None:
        before = self._held.pop(name, None)
        self._room += 0 if before is None else self._weigh(before[1])

    def _remember(self, name: str, signature: Signature, value: Value) -> None:
        self._damaged.pop(name, None)
        with self._memory:
            self._forget(name)
            self._held[name] = signature, value
            self._room -= self._weigh(value)
            while self._room < 0 and len(self._held) > 1:
                self._room += self._weigh(self._held.popitem(last=False)[1][1])


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
        _sync(draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    _sync(path.parent)


def signature_of(path: Path) -> Signature:
    """The current signature of a file.

    Raises:
        OSError: it cannot be examined.
    """
    facts = path.stat()
    if time_ns() - facts.st_mtime_ns <= CLOCK_STEP_NS:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents; on return their names are on disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(path: Path) -> None:
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
