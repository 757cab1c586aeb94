"""The log: one JSON object per line on standard error; standard output carries answers only."""

import os
import select
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from json import dumps
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

MOST_WAITING: Final = 10_000
"""Lines that wait for a reader of the log; then the oldest leave, and are counted."""
AT_ONCE_BYTES: Final = 4_096
"""What a pipe that can be written takes at once (PIPE_BUF), so that no write waits."""
AT_THE_END_S: Final = 1.0
"""Time that a service which ends gives a reader to take the lines that wait, seconds."""


class Lines:
    """Lines on their way to standard error; in a service they wait in memory while it takes none.

    So a reader of the log that has stopped makes no answer wait. Without a service, and where
    standard error is no file of the system, each line is written at once.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[bytes] = deque()
        self._begun = b""  # what is left of lines that are partly written
        self._services = self._lost = 0

    def write(self, line: str) -> None:
        """Write a line; one that cannot be written stops nothing."""
        with self._lock:
            descriptor = _descriptor() if self._services else None
            if descriptor is None:
                with suppress(OSError, ValueError):
                    sys.stderr.write(f"{line}\n")
                    sys.stderr.flush()
                return
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(f"{line}\n".encode(errors="backslashreplace"))
            self._drain(descriptor)

    def drain(self) -> bool:
        """Write lines that wait, as far as standard error takes them; whether none is left."""
        with self._lock:
            descriptor = _descriptor()
            if descriptor is not None:
                self._drain(descriptor)
            return descriptor is None or not (self._begun or self._waiting)

    @contextmanager
    def of_service(self) -> Iterator[None]:
        """Until the end of the block, no line makes its writer wait for a reader of the log."""
        self._services += 1
        try:
            yield
        finally:
            end = monotonic() + AT_THE_END_S
            while not self.drain() and monotonic() < end:
                _is_writable(_descriptor() or 2, AT_THE_END_S)
            self._services -= 1

    def _drain(self, descriptor: int) -> None:
        try:
            while (self._begun or self._waiting) and _is_writable(descriptor):
                if not self._begun:
                    self._begun = self._next()
                # A longer piece would wait for a reader, however long the line is.
                written = os.write(descriptor, self._begun[:AT_ONCE_BYTES])
                self._begun = self._begun[written:]
        except OSError:
            self._begun = b""

    def _next(self) -> bytes:
        """The next lines, as many as can be written at once, or a longer one."""
        if self._lost:
            self._waiting.appendleft(_loss(self._lost))
            self._lost = 0
        chunk = self._waiting.popleft()
        while self._waiting and len(chunk) + len(self._waiting[0]) <= AT_ONCE_BYTES:
            chunk += self._waiting.popleft()
        return chunk


LINES: Final = Lines()
"""Those of this process."""


def log() -> "FilteringBoundLogger":
    """The logger of the service.

    Tracebacks omit the values of variables, which may hold data of users.
    """
    import structlog

    logger: FilteringBoundLogger = structlog.wrap_logger(
        _Printer(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    return logger


class _Printer:
    """The end of structlog's chain, which writes what was rendered."""

    def info(self, message: str) -> None:
        LINES.write(message)

    error = warning = info


def _loss(count: int) -> bytes:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    said = {"event": "lines of the log were lost", "count": count, "level": "error"}
    return f"{dumps({**said, 'timestamp': now})}\n".encode()


def _is_writable(descriptor: int, within_s: float = 0.0) -> bool:
    polled = select.poll()
    polled.register(descriptor, select.POLLOUT)
    return bool(polled.poll(within_s * 1_000))


def _descriptor() -> int | None:
    """The file of standard error; None where it is none of the system's, or none can be asked."""
    if not hasattr(select, "poll"):
        return None
    with suppress(OSError, ValueError, AttributeError):
        return sys.stderr.fileno()
    return None
