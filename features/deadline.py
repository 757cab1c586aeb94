"""A deadline on work in progress, which long loops check between two operators.

The deadline belongs to the context of the caller, so that a request on one thread does not end the
work of another. Without a deadline, `check` costs one lookup and never raises.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from forerun.data.errors import DeadlineExceeded

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
    """

    seconds: float
    at_seconds: float
    abandoned: Event

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The deadline that many seconds from now."""
        return cls(seconds, time.monotonic() + seconds, Event())


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Work in this context has to end by the deadline."""
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
        raise DeadlineExceeded(
            f"The answer was not ready within {deadline.seconds:g} seconds. Ask again when the "
            "service has less to do, send a smaller model, or raise FORERUN_ANSWER_SECONDS."
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
