"""What stores need of the place where they keep their records, be it a folder or a database."""

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

Value = TypeVar("Value")


class Records(Protocol[Value]):
    """Values by name, shared by any number of threads and processes.

    After `put` returned, or the outermost `writing` that it stands in ended, a value survives a
    kill of the process. A record that does not hold a value is reported, left out and left in
    place, so that it disables no other one; `put` replaces it.
    """

    def is_used(self) -> bool:
        """Whether there ever was a record; true also where that cannot be known."""

    def stamp(self) -> int:
        """A stamp that changes with every change by any process; -1 right after a change."""

    def is_unchanged(self, stamp: int) -> bool:
        """Whether no record was added, replaced or deleted since `stamp()` returned this stamp."""

    def names(self) -> frozenset[str]:
        """Names of all records, also of those that hold no value."""

    def values(self) -> dict[str, Value]:
        """Values by name, in the order of the names; only of names that end in `.json`."""

    def held(self, name: str) -> Value | None:
        """The value if it is in memory and was not deleted; nothing is read."""

    def get(self, name: str) -> Value:
        """The value of a record.

        Raises:
            FileNotFoundError: there is no such record.
            DamagedFile: the record does not hold a value.
            CannotStore: the place does not answer.
        """

    def writing(self) -> AbstractContextManager[None]:
        """Exclude all other writers from here to the end; what is read inside is current.

        Raises:
            CannotStore: nothing can be written now.
        """

    def put(self, name: str, value: Value) -> None:
        """Write a value, and replace the one of that name.

        Raises:
            DiskFull, CannotStore: it could not be written; what was stored before remains.
        """

    def mark(self, name: str) -> None:
        """Write an empty record, whose name says all; repeating it has no effect.

        Raises:
            DiskFull, CannotStore: it could not be written.
        """

    def delete(self, name: str) -> bool:
        """Delete a record, whether or not it holds a value.

        Returns:
            Whether there was such a record.

        Raises:
            CannotStore: it could not be deleted.
        """
