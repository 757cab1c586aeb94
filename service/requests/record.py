"""What is known of the request that is being handled: its identifiers, its key and its stages."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, NamedTuple, Self

IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
"""An identifier of a request that is taken from its header X-Request-ID."""
SECRET: Final = re.compile(r"fr_[0-9a-f]{12}_")
"""How a key begins, which is never taken for an identifier."""
TRACEPARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
"""The header of https://www.w3.org/TR/trace-context; later versions may have more at the end."""


class TraceParent(NamedTuple):
    """The span of a client that a request belongs to.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        flags: 0 to 255; 1 where the client records its span.
    """

    trace_id: str
    span_id: str
    flags: int


class Stage(NamedTuple):
    """A part of the work on a request, in nanoseconds since 1970.

    Attributes:
        name: `read`, `queue`, `predict` or `write`.
    """

    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class RequestRecord:
    """The record of one request.

    Attributes:
        request_id: the client's identifier of the request, or a new one.
        trace: the client's span; None without a valid header `traceparent`.
        key_name: name of the key of the request; None where it needs none, or has no valid one.
        tenant: tenant of that key; None where it has none.
        stages: the stages that have ended; None where they are not recorded.
    """

    request_id: str
    trace: TraceParent | None = None
    key_name: str | None = None
    tenant: str | None = None
    stages: list[Stage] | None = None

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]], *, staged: bool) -> Self:
        """A new record of a request, which `current` gives from now on to the end of its task.

        Args:
            headers: headers of the request, with names in lower case.
            staged: whether its stages are recorded.
        """
        identifier, trace = "", None
        for name, value in headers:
            if name == b"x-request-id":
                identifier = value.decode("latin-1")
            elif name == b"traceparent":
                trace = trace_parent(value.decode("latin-1"))
        if not IDENTIFIER.fullmatch(identifier) or SECRET.search(identifier):
            identifier = token_hex(8)
        record = cls(identifier, trace, stages=[] if staged else None)
        _CURRENT.set(record)
        return record


def trace_parent(text: str) -> TraceParent | None:
    """The span that a header `traceparent` names; None where it is not valid."""
    found = TRACEPARENT.fullmatch(text)
    if found is None or (found[1] == "00" and found[5]):
        return None
    return TraceParent(found[2], found[3], int(found[4], 16))


def current() -> RequestRecord | None:
    """The record of the request that is handled; None outside of requests."""
    return _CURRENT.get()


@contextmanager
def continued(record: RequestRecord | None) -> Iterator[None]:
    """Work in this block, on another thread, belongs to the request of a record."""
    token = _CURRENT.set(record)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The block is a stage of the request that is handled, if its stages are recorded."""
    record = _CURRENT.get()
    if record is None or record.stages is None:
        yield
        return
    start_ns = time.time_ns()
    try:
        yield
    finally:
        record.stages.append(Stage(name, start_ns, time.time_ns()))


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)
