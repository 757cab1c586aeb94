"""The access log: one line of JSON for each request, without anything that a client keeps secret.

A line has the route's template in place of the path, and neither the query nor any header but the
identifiers of the request and of its trace.
"""

from datetime import UTC, datetime

from msgspec import Struct, json

from forerun.service.log import LINES
from forerun.service.requests.record import RequestRecord

_ENCODER = json.Encoder()


class Line(Struct):
    """One line of the access log.

    Attributes:
        route: template of the path, such as /v1/devices/{name}.
        duration_ms: time from the header of the request to the end of the answer.
        bytes: bytes of the answer's body.
        trace_id: trace of the client; None where it sent none.
        key_name: name of the key; None where the request needed none, or had no valid one.
        tenant: tenant of that key; None where it has none.
        version: version of the predictors; None while they are loading.
        client: address of the client; None on a Unix socket.
    """

    method: str
    route: str
    status: int
    duration_ms: float
    bytes: int
    request_id: str
    trace_id: str | None
    key_name: str | None
    tenant: str | None
    version: str | None
    client: str | None
    event: str = "request"
    level: str = "info"
    timestamp: str = ""


def log_request(
    record: RequestRecord,
    *,
    method: str,
    route: str,
    status: int,
    duration_s: float,
    sent_bytes: int,
    version: str | None,
    client: str | None,
) -> None:
    """Write the line of a request to standard error; a log that cannot be written stops nothing.

    Made here and not by structlog, because it is written for every request.
    """
    line = Line(
        method=method,
        route=route,
        status=status,
        duration_ms=round(duration_s * 1e3, 3),
        bytes=sent_bytes,
        request_id=record.request_id,
        trace_id=None if record.trace is None else record.trace.trace_id,
        key_name=record.key_name,
        tenant=record.tenant,
        version=version,
        client=client,
        timestamp=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    )
    LINES.write(_ENCODER.encode(line).decode())
