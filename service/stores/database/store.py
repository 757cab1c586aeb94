"""Records of one store in a database, with what is known of them in memory."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock, local
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from forerun.data.errors import CannotStore
from forerun.service.stores.places import SUFFIX, DamagedRecord, Place

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from forerun.service.stores.database.connections import Database

Value = TypeVar("Value")
WAIT_S: Final = 5.0
"""Time that a thread waits for the other threads of this process that write, seconds."""


@dataclass
class _Write(Generic[Value]):
    """What a transaction writes: name -> the value, or that it holds none; None if deleted."""

    connection: "Connection"
    number: int
    changes: dict[str, tuple[Value | None] | None] = field(default_factory=dict)


class Records(Generic[Value]):
    """Values by name, shared by any number of threads and processes.

    After `put` returned, or the outermost `writing` that it stands in ended, a value survives a
    kill of the process. A record that does not hold a value is reported, left out and left in
    place, so that it disables no other one; `put` replaces it.

    Names are always in memory. Values are too where `room` is 0, and then nothing but a write waits
    for a database on another machine, from which changes are taken over once a second. Where there
    is a limit of memory, a value that is not there is read from the database, whoever wrote it.

    Args:
        place: where the records are.
        encode: makes the content of a record from a value.
        decode: makes the value from the name and the content; any `Exception` that it raises means
            that the record is damaged.
        report: called with the path and the reason when a record is found damaged.
        weigh: what a value costs in memory.
        room: largest sum of weights in memory; 0 for no limit.

    Raises:
        DatabaseAway, DatabaseRefused, OtherSchema: the names cannot be read.
    """

    def __init__(
        self,
        place: Place,
        encode: Callable[[Value], str],
        decode: Callable[[str, bytes], Value],
        report: Callable[[Path, Exception], None] = lambda path, why: None,
        weigh: Callable[[Value], int] = lambda value: 0,
        room: int = 0,
    ) -> None:
        self.name, self._place = place.path, place
        self._encode, self._decode = encode, decode
        self._report, self._weigh = report, weigh
        self._room, self._holds_all = room, room == 0
        self._numbers: dict[str, int] = {}
        self._held: OrderedDict[str, tuple[int, Value]] = OrderedDict()
        self._damaged: dict[str, tuple[int, str]] = {}
        self._known, self._stamp, self._is_used = 0, 0, False
        self._memory, self._turn, self._here = Lock(), Lock(), local()
        # From a read of the database to its end in memory no other one is taken over.
        self._order = RLock()
        self._is_joined = False
        self._look()

    @property
    def _database(self) -> "Database":
        return self._place.database

    def _join(self) -> None:
        self._database.joined_by(self)
        self._is_joined = True

    def _look(self) -> None:
        """Take over what others changed, unless nothing was ever stored."""
        if self._is_joined:
            self._database.look_at_times()
        elif not self._place.is_empty():
            self._join()

    @staticmethod
    def of_texts(place: Place) -> "Records[str]":
        """The records of a place as they are stored, of which one is in memory."""
        return Records(place, str, lambda name, content: content.decode(), room=1)

    def is_used(self) -> bool:
        """Whether any process ever wrote to this store."""
        self._look()
        return self._is_used

    def stamp(self) -> int:
        """A stamp that changes whenever this process learns of a change."""
        self._look()
        return self._stamp

    def is_unchanged(self, stamp: int) -> bool:
        """Whether this process learned of no change since `stamp()` returned this stamp."""
        return stamp == self.stamp()

    def names(self) -> frozenset[str]:
        """Names of all records, also of those that hold no value."""
        self._look()
        changes = self._changes()
        with self._memory:
            names = set(self._numbers)
        names.difference_update(changes)
        names.update(name for name, value in changes.items() if value is not None)
        return frozenset(names)

    def values(self) -> dict[str, Value]:
        """Values by name, in the order of the names, without damaged records.

        Raises:
            CannotStore: a value is not in memory and cannot be read.
        """
        found = {}
        for name in sorted(self.names()):
            if name.endswith(SUFFIX):
                with suppress(FileNotFoundError, DamagedRecord):
                    found[name] = self.get(name)
        return found

    def held(self, name: str) -> Value | None:
        """The value if it is in memory and no process is known to have changed it."""
        self._look()
        with self._memory:
            return self._in_memory(name)

    def get(self, name: str) -> Value:
        """The value of a record.

        Raises:
            FileNotFoundError: there is no such record.
            DamagedRecord: the record does not hold a value.
            CannotStore: it is not in memory and cannot be read.
        """
        changes = self._changes()
        if name in changes:
            return _of_change(name, changes[name])
        found = self.held(name)
        if found is not None:
            return found
        if not self._holds_all:
            with self._order, self._reading() as connection:
                self._load(connection, [name])
        with self._memory:
            found = self._in_memory(name)
            if found is not None:
                return found
            if name in self._numbers:
                raise DamagedRecord(f"{name} is damaged: {self._damaged.get(name, (0, ''))[1]}")
        raise FileNotFoundError(name)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude all other writers; what is written inside is stored as a whole at the end.

        Raises:
            DiskFull, CannotStore: nothing was stored, or, where the connection broke at the very
                end, that is unknown.
        """
        if not self._turn.acquire(timeout=WAIT_S):
            raise CannotStore(f"Nothing was stored: other threads write for over {WAIT_S:g} s.")
        try:
            with self._database.transaction() as connection:
                write = self._begun(connection)
                self._here.write = write
                yield
                self._counted(write)
            self._committed(write)
        finally:
            self._here.write = None
            self._turn.release()

    def put(self, name: str, value: Value) -> None:
        """Write a value, and replace the one of that name.

        Raises:
            DiskFull, CannotStore: it could not be written; what was stored before remains.
        """
        with self._joined() as write:
            self._store(write, name, self._encode(value), (value,))

    def mark(self, name: str) -> None:
        """Write an empty record, whose name says all; repeating it has no effect.

        Raises:
            DiskFull, CannotStore: it could not be written.
        """
        with self._joined() as write:
            self._store(write, name, "", (None,))

    def delete(self, name: str) -> bool:
        """Delete a record, whether or not it holds a value.

        Returns:
            Whether there was such a record.

        Raises:
            CannotStore: it could not be deleted.
        """
        with self._joined() as write:
            gone = self._database.remove(write.connection, self.name, name)
            if gone:
                write.changes[name] = None
        return gone

    def take_over(self, connection: "Connection", counters: tuple[int, int] | None) -> None:
        """Read what changed since the last time.

        Args:
            connection: a connection in a transaction.
            counters: numbers of the last transaction that changed the store, and of the last one
                that deleted a record; None where nobody wrote yet.
        """
        changed, deleted = counters or (0, 0)
        self._is_used = self._is_used or counters is not None
        with self._order:
            if changed > self._known:
                self._read_changes(connection, changed, is_whole=deleted > self._known)

    def _read_changes(self, connection: "Connection", changed: int, is_whole: bool) -> None:
        since = 0 if is_whole else self._known
        found = self._database.changed(connection, self.name, since)
        if self._holds_all:
            self._load(connection, [n for n, number in found.items() if self._lacks(n, number)])
        with self._memory:
            if is_whole:
                for name in self._numbers.keys() - found.keys():
                    self._forget(name)
            self._numbers.update(found)
            self._known = changed
            self._stamp += 1

    def _lacks(self, name: str, number: int) -> bool:
        if not name.endswith(SUFFIX):
            return False
        with self._memory:
            return all(each.get(name, (0,))[0] < number for each in (self._held, self._damaged))

    def _load(self, connection: "Connection", names: list[str]) -> None:
        """Read records from the database into memory; those that are gone are forgotten."""
        gone = set(names)
        for name, number, content in self._database.contents(connection, self.name, names):
            self._learn(name, number, content)
            gone.remove(name)
        with self._memory:
            for name in gone:
                self._forget(name)

    def _learn(self, name: str, number: int, content: str) -> None:
        try:
            value = self._decode(name, content.encode())
        except Exception as error:
            if self._damaged.get(name, (0, ""))[0] != number:
                self._report(Path(self.name) / name, error)
            with self._memory:
                self._forget(name)
                self._numbers[name], self._damaged[name] = number, (number, str(error))
            return
        with self._memory:
            self._remember(name, number, value)

    def _in_memory(self, name: str) -> Value | None:
        held = self._held.get(name)
        if held is None or held[0] != self._numbers.get(name):
            return None
        self._held.move_to_end(name)
        return held[1]

    def _forget(self, name: str) -> None:
        self._damaged.pop(name, None)
        if self._numbers.pop(name, None) is not None:
            self._stamp += 1
        before = self._held.pop(name, None)
        self._room += 0 if before is None else self._weigh(before[1])

    def _remember(self, name: str, number: int, value: Value) -> None:
        self._forget(name)
        self._numbers[name], self._held[name] = number, (number, value)
        self._stamp += 1
        self._room -= self._weigh(value)
        while self._room < 0 and len(self._held) > 1 and not self._holds_all:
            self._room += self._weigh(self._held.popitem(last=False)[1][1])

    def _write(self) -> _Write[Value] | None:
        """The write that this thread is in."""
        return getattr(self._here, "write", None)

    def _changes(self) -> Mapping[str, tuple[Value | None] | None]:
        """What this thread wrote and did not commit yet."""
        write = self._write()
        return {} if write is None else write.changes

    def _reading(self) -> AbstractContextManager["Connection"]:
        write = self._write()
        if write is None:
            return self._database.transaction(is_write=False)
        return nullcontext(write.connection)

    @contextmanager
    def _joined(self) -> Iterator[_Write[Value]]:
        """The write that this thread is in, or one of its own."""
        with self.writing() if self._write() is None else nullcontext():
            yield self._here.write

    def _begun(self, connection: "Connection") -> _Write[Value]:
        """Lock the store until the end of the transaction, and take over what others wrote."""
        counters = self._database.locked(connection, self.name)
        if counters[0] < self._known:  # another file was put in the place of the database
            with self._order, self._memory:
                for name in list(self._numbers):
                    self._forget(name)
                self._known = 0
        self.take_over(connection, counters)
        return _Write(connection, counters[0] + 1)

    def _store(
        self, write: _Write[Value], name: str, content: str, value: tuple[Value | None]
    ) -> None:
        self._database.write(write.connection, self.name, write.number, {name: content})
        write.changes[name] = value

    def _counted(self, write: _Write[Value]) -> None:
        if write.changes:
            numbers = {"changed": write.number}
            if None in write.changes.values():
                numbers["deleted"] = write.number
            self._database.count(write.connection, self.name, numbers)

    def _committed(self, write: _Write[Value]) -> None:
        """Take over what this thread wrote, unless another one has read it already."""
        self._is_used = True
        with self._order, self._memory:
            if self._known >= write.number:
                return
            for name, change in write.changes.items():
                self._forget(name)
                if change is not None and change[0] is not None:
                    self._remember(name, write.number, change[0])
                elif change is not None:
                    self._numbers[name] = write.number
            if write.changes:
                self._known = write.number
                self._stamp += 1


def _of_change(name: str, change: tuple[Value | None] | None) -> Value:
    if change is None:
        raise FileNotFoundError(name)
    if change[0] is None:
        raise DamagedRecord(f"{name} holds no value")
    return change[0]
