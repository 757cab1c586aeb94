"""Limits on work in progress: a deadline, which long loops check between two operators, and the
number of operators that a graph may have.

The limits belong to the context of the caller, so that a request on one thread does not end the
work of another. Without a deadline, a check costs one lookup and never raises.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from forerun.data.errors import DeadlineExceeded, ModelTooLarge

T = TypeVar("T")
CHECKED_EVERY = 64
"""Items of `watched` between two checks; each takes some microseconds."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When work has to end.

    Attributes:
        seconds: time that the work may take.
        at_seconds: the same as a reading of `time.monotonic`.
        abandoned: set when nobody waits for the result any more; the work then ends at once.
        max_operators: operators that a graph may have; None for any number.
    """

    seconds: float
    at_seconds: float
    abandoned: Event
    max_operators: int | None = None

    @classmethod
    def after(cls, seconds: float, max_operators: int | None = None) -> "Deadline":
        """The deadline that many seconds from now."""
        return cls(seconds, time.monotonic() + seconds, Event(), max_operators)

    def exceeded(self) -> DeadlineExceeded:
        """The error of work that did not end in time."""
        return DeadlineExceeded(
            f"The answer was not ready within {self.seconds:g} seconds. Ask again when the "
            "service has less to do, send a smaller model, or raise FORERUN_ANSWER_SECONDS."
        )


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline | None:
    """The deadline of the work in this context; None where there is none."""
    return _CURRENT.get()


@contextmanager
def within(deadline: Deadline | None) -> Iterator[None]:
    """Work in this context has to end by the deadline; by None, it may take any time.

    Work whose result is kept for later callers takes any time: it must not end halfway because the
    first caller has left.
    """
    token = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check() -> None:
    """End the work if its deadline has passed, or if nobody waits for its result.

    Raises:
        DeadlineExceeded: the deadline has passed, or the caller has left.
    """
    deadline = _CURRENT.get()
    if deadline is None:
        return
    if deadline.abandoned.is_set() or time.monotonic() > deadline.at_seconds:
        raise deadline.exceeded()


def check_operators(count: int, where: str) -> None:
    """Refuse a graph with more operators than work in this context may take on.

    Args:
        count: number of operators, or of nodes of a file.
        where: file or field, for the message.

    Raises:
        ModelTooLarge: there are too many.
    """
    deadline = _CURRENT.get()
    most = deadline.max_operators if deadline is not None else None
    if most is not None and count > most:
        raise ModelTooLarge(
            where, f"it has {count:,} operators; {most:,} at most, by FORERUN_MAX_OPERATORS."
        )


def watched(items: Iterable[T]) -> Iterator[T]:
    """The items in order, with a check before every 64th, for loops that take little time for each.

    Raises:
        DeadlineExceeded: as `check`.
    """
    for number, item in enumerate(items):
        if number % CHECKED_EVERY == 0:
            check()
        yield item
