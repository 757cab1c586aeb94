"""Files that must survive: atomic, durable writes, and a store of one file for each value."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from threading import Lock
from time import time_ns
from typing import Generic, TypeVar

Value = TypeVar("Value")
Signature = tuple[int, int, int] | None
"""Number, size in bytes and time of the last change of a file, which differ for every write; None
for a file that changed a moment ago and may change again within the same timestamp."""

SUFFIX = ".json"
CLOCK_STEP_NS = 50_000_000
"""Longer than the resolution of file timestamps, so that two changes never share a timestamp."""


class DamagedFile(ValueError):
    """A file does not hold what its store wrote."""


class FileStore(Generic[Value]):
    """Values in one folder, one JSON file each, shared by any number of threads and processes.

    After `put` returned, a value survives a kill of the process and a failure of the power. Every
    reader sees a file whole, as it was before or after a write. A file that does not hold a value
    is reported, left out and left in place, so that it disables no other one; `put` replaces it.

    Args:
        folder: folder of the files; the first write creates it.
        encode: makes the text of a file from a value.
        decode: makes the value from the name and the bytes of a file; any `Exception` that it
            raises means that the file is damaged.
        report: called with the name and the reason when a version of a file is found damaged.
        weigh: what a value costs in memory; by default nothing, so that all values are kept there.
        room: largest sum of weights in memory. The least recently used values leave first and are
            read again on demand; the last one stays, however heavy it is.
    """

    def __init__(
        self,
        folder: Path,
        encode: Callable[[Value], str],
        decode: Callable[[str, bytes], Value],
        report: Callable[[str, Exception], None] = lambda name, why: None,
        weigh: Callable[[Value], int] = lambda value: 0,
        room: int = 0,
    ) -> None:
        self._folder, self._encode, self._decode = folder, encode, decode
        self._report, self._weigh, self._room = report, weigh, room
        self._held: OrderedDict[str, tuple[Signature, Value]] = OrderedDict()
        self._damaged: dict[str, Signature] = {}
        self._memory, self._disk = Lock(), Lock()

    def stamp(self) -> int:
        """A stamp that changes when any process adds or replaces a file; -1 right after a change.

        It is 0 while there is no folder.
        """
        try:
            stamp = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0
        # A folder that changed a moment ago may change again within the same timestamp.
        return stamp if time_ns() - stamp > CLOCK_STEP_NS else -1

    def is_unchanged(self, stamp: int) -> bool:
        """Whether no file was added or replaced since `stamp()` returned this stamp."""
        return stamp == self.stamp() >= 0

    def names(self) -> frozenset[str]:
        """Names of all files of the folder, also of those that hold no value."""
        with suppress(FileNotFoundError):
            return frozenset(os.listdir(self._folder))  # noqa: PTH208
        return frozenset()

    def values(self) -> dict[str, Value]:
        """Values by the names of their files, in the order of the names, without damaged files."""
        found = {}
        for name in sorted(self.names()):
            if name.endswith(SUFFIX):
                with suppress(OSError, DamagedFile):
                    found[name] = self.get(name)
        return found

    def held(self, name: str) -> Value | None:
        """The value if it is in memory, without access to the disk, else None."""
        with self._memory:
            if name not in self._held:
                return None
            self._held.move_to_end(name)
            return self._held[name][1]

    def get(self, name: str) -> Value:
        """The value of a file, from memory if the file did not change since it was read.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedFile: the file does not hold a value.
            OSError: the file cannot be read.
        """
        path = self._folder / name
        signature = signature_of(path)
        with self._memory:
            held = self._held.get(name)
        if held is not None and held[0] == signature is not None:
            self.held(name)
            return held[1]
        content = path.read_bytes()
        try:
            value = self._decode(name, content)
        except Exception as error:
            if signature is None or self._damaged.get(name) != signature:
                self._damaged[name] = signature
                self._report(name, error)
            raise DamagedFile(f"{name} is damaged: {error}") from error
        self._remember(name, signature, value)
        return value

    def is_intact(self, name: str) -> bool:
        """Whether the file exists and holds a value."""
        with suppress(FileNotFoundError, DamagedFile):
            self.get(name)
            return True
        return False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude all other writers, of this and of other processes, from here to the end.

        Whatever a write depends on, such as the number of files, is read inside. Where the file
        system has no locks, writers of other processes are not excluded.
        """
        import fcntl

        _make_folder(self._folder)
        with self._disk:
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                with suppress(OSError):
                    fcntl.flock(folder, fcntl.LOCK_EX)
                yield
            finally:
                os.close(folder)

    def put(self, name: str, value: Value) -> None:
        """Write a value, and replace the one of that name.

        Raises:
            OSError: the value could not be written; what was stored before remains.
        """
        _make_folder(self._folder)
        path = self._folder / name
        write_whole(path, self._encode(value))
        self._remember(name, signature_of(path), value)

    def mark(self, name: str) -> None:
        """Write an empty file, whose name says all; repeating it has no effect."""
        write_whole(self._folder / name, "")

    def _remember(self, name: str, signature: Signature, value: Value) -> None:
        with self._memory:
            before = self._held.pop(name, None)
            self._room += 0 if before is None else self._weigh(before[1])
            self._held[name] = signature, value
            self._room -= self._weigh(value)
            while self._room < 0 and len(self._held) > 1:
                self._room += self._weigh(self._held.popitem(last=False)[1][1])


def write_whole(path: Path, text: str) -> None:
    """Write a file, which only its owner may read, atomically and durably.

    Raises:
        OSError: the file cannot be written; the previous file remains.
    """
    with draft_of(path) as draft:
        draft.touch(mode=0o600)
        draft.write_text(text, encoding="utf-8")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Where to write a file, which takes the place of `path` when the block ends without an error.

    The replacement is atomic, and afterwards the content and the name of the file are on disk.
    After an error the draft is deleted.
    """
    draft = path.with_name(f".{path.name}.{token_hex(6)}.part")
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def signature_of(path: Path) -> Signature:
    """The signature of a file as it is now.

    Raises:
        OSError: it cannot be examined.
    """
    facts = path.stat()
    if time_ns() - facts.st_mtime_ns <= CLOCK_STEP_NS:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; on return their names are on disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, which are not flushed together with its files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
