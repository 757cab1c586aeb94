"""Limits on work in progress: a deadline that long loops check, and a maximum number of operators
per graph.

The limits belong to the caller's context, so that a request on one thread does not end the work of
another. Without a deadline, a check costs one lookup and never raises.
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
"""Items of `watched` between two checks; each takes a few microseconds."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which work has to end.

    Attributes:
        seconds: time that the work may take.
        at_seconds: the deadline as a reading of `time.monotonic`.
        abandoned: set when nobody waits for the result any more; the work then ends at once.
        max_operators: maximum operators per graph; None for no limit.
    """

    seconds: float
    at_seconds: float
    abandoned: Event
    max_operators: int | None = None

    @classmethod
    def after(cls, seconds: float, max_operators: int | None = None) -> "Deadline":
        """The deadline this many seconds from now."""
        return cls(seconds, time.monotonic() + seconds, Event(), max_operators)

    def exceeded(self) -> DeadlineExceeded:
        """The error for work that did not end in time."""
        return DeadlineExceeded(
            f"The answer was not ready within {self.seconds:g} seconds. Ask again when the "
            "service has less to do, send a smaller model, or raise FORERUN_ANSWER_SECONDS."
        )


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline | None:
    """The deadline of the current context; None without one."""
    return _CURRENT.get()


@contextmanager
def within(deadline: Deadline | None) -> Iterator[None]:
    """Set the deadline of work in this context; None removes it.

    Work whose result is cached for later callers should have no deadline: it must not stop halfway
    because the first caller has left.
    """
    token = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check() -> None:
    """End the work if its deadline has passed or nobody waits for its result.

    Raises:
        DeadlineExceeded: the deadline has passed, or the caller has left.
    """
    deadline = _CURRENT.get()
    if deadline is None:
        return
    if deadline.abandoned.is_set() or time.monotonic() > deadline.at_seconds:
        raise deadline.exceeded()


def check_operators(count: int, where: str) -> None:
    """Refuse a graph with more operators than this context allows.

    Args:
        count: number of operators, or of nodes in a file.
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
    """Iterate with a deadline check before every 64th item, for loops with short steps.

    Raises:
        DeadlineExceeded: as `check`.
    """
    for number, item in enumerate(items):
        if number % CHECKED_EVERY == 0:
            check()
        yield item
