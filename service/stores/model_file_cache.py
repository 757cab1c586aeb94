"""What was computed from model files, kept on disk for processes that answer one question and end.

An entry is found by the content of the file and by everything else that it depends on, so that it
is never wrong after a change of the file, of forerun, of a spec sheet or of measurements: it is no
longer found. Files with external weights are read without them, and hashed without them too.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from pydantic import TypeAdapter

from forerun.data.file_store import Signature, signature_of
from forerun.features.readers import MAX_BYTES
from forerun.service.settings import Settings
from forerun.service.stores.places import FILE

Value = TypeVar("Value")

FOLDER = "cache"
SUFFIXES = (".onnx", ".pt2", ".json")
"""Suffixes of the files that forerun's own readers read."""
ROOM_BYTES = 2**28
MOST_ENTRIES = 2_000
LONGEST_WRITE_S = 60.0
"""Age from which on a draft was left behind, seconds."""
_PACKAGES = ("site-packages", "dist-packages")


class TextCache:
    """Texts by key, in one folder that any number of processes share.

    A damaged entry counts as absent. Where the folder cannot be written, nothing is kept.

    Args:
        folder: folder of the entries; the first one creates it.
        room: largest sum of the sizes of all entries, bytes; the least recently used leave first.
        most: largest number of entries.
    """

    def __init__(self, folder: Path, room: int = ROOM_BYTES, most: int = MOST_ENTRIES) -> None:
        self._folder, self._room, self._most = folder, room, most

    def get(self, key: str) -> str | None:
        """The text under a key, or None; it becomes the most recently used."""
        path = self._folder / key
        with suppress(OSError, UnicodeDecodeError):
            checksum, _, text = path.read_bytes().decode().partition("\n")
            if checksum == _checksum(key, text):
                os.utime(path)
                return text
        return None

    def put(self, key: str, text: str) -> None:
        """Keep a text, in place of the one of that key."""
        draft = self._folder / f".{token_hex(8)}.part"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_bytes(f"{_checksum(key, text)}\n{text}".encode())
            draft.replace(self._folder / key)
            self._make_room()
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _make_room(self) -> None:
        with os.scandir(self._folder) as entries:
            files = [(entry.stat(), entry.path) for entry in entries if not _is_written(entry)]
        room, most = self._room, self._most
        for facts, path in sorted(files, key=lambda file: -file[0].st_mtime_ns):
            room, most = room - facts.st_size, most - 1
            if room < 0 or most < 0:
                Path(path).unlink(missing_ok=True)


def _is_written(entry: "os.DirEntry[str]") -> bool:
    """Whether it is the draft of a writer that is at work: it is no entry yet."""
    is_draft = entry.name.startswith(".")
    return is_draft and time.time() - entry.stat().st_mtime < LONGEST_WRITE_S


def cached(
    home: Path,
    source: Path,
    inputs: object,
    compute: Callable[[], Value],
    *,
    dump: Callable[[Value], str],
    load: Callable[[str], Value],
) -> Value:
    """The value that was computed before from a file of this content, or a new one.

    Args:
        home: folder of the user's files, which holds the cache.
        source: model file. A file that changed a moment ago, or that no reader of forerun's own
            reads, is not looked up.
        inputs: all else that the value depends on besides the installation, ready for JSON.
        compute: makes the value.
        dump: makes a text of a value.
        load: makes the value from its text. A value that differs afterwards is not kept.
    """
    signature = _signature(source)
    if signature is None:
        return compute()
    key = _hash([_installation(), source.name, _digest(source, signature), inputs])
    cache = TextCache(home / FOLDER)
    text = cache.get(key)
    if text is not None:
        return load(text)
    value = compute()
    text = dump(value)
    if load(text) == value and _signature(source) == signature:
        cache.put(key, text)
    return value


def _signature(source: Path) -> Signature:
    """What changes with the content of a file; None where the file is not to be looked up."""
    with suppress(OSError):
        if source.suffix.lower() in SUFFIXES and source.stat().st_size <= MAX_BYTES:
            return signature_of(source)
    return None


@lru_cache(maxsize=8)
def _digest(source: Path, signature: Signature) -> str:
    """SHA-256 of the content of a file, once for each signature."""
    with source.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp_of(*places: Path) -> str:
    """A stamp that changes with every change of these files, and of files in these folders.

    They need not exist; an empty file is like none.
    """
    return _hash([sorted(_facts(str(place))) for place in places])


def _installation() -> Sequence[object]:
    """What changes when forerun or another package is installed, or a file of forerun changes."""
    others = [Path(place) for place in sys.path if Path(place).name in _PACKAGES]
    changes = [place.stat().st_mtime_ns for place in others if place.is_dir()]
    return [stamp_of(Path(__file__).parents[2]), changes, sys.version]


def _facts(place: str) -> Iterator[tuple[str, int, int, int]]:
    """Path, inode, size and time of the last change of a file, or of each file in a folder."""
    with suppress(FileNotFoundError):
        if os.path.isdir(place):  # noqa: PTH112
            for name in os.listdir(place):  # noqa: PTH208
                if name != "__pycache__":
                    yield from _facts(f"{place}/{name}")
        elif (facts := os.stat(place)).st_size:  # noqa: PTH116
            yield place, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _checksum(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


Answer = TypeVar("Answer")


def cached_answer(
    kind: type[Answer], source: Path, asked: object, compute: Callable[[], Answer]
) -> Answer:
    """The answer that an earlier command computed for an equal question, or a new one.

    Only answers of the bundled predictors are kept, and none with a database. They are computed
    anew after a change of the model file, of forerun, of a registered device or of the user's
    measurements.

    Args:
        kind: type of the answer.
        source: model file.
        asked: the command and all its options, ready for JSON.
        compute: computes the answer.
    """
    settings = Settings.load()
    if settings.registry_uri or settings.predictor_folder or settings.database_url:
        return compute()
    adapter = TypeAdapter(kind)
    stores = stamp_of(*(settings.home / name for name in (FILE, f"{FILE}-wal")))
    return cached(
        settings.home,
        source,
        [asked, settings.tenant, stores],
        compute,
        dump=lambda answer: adapter.dump_json(answer).decode(),
        load=adapter.validate_json,
    )
