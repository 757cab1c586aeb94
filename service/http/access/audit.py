"""The log of writes: one line for each request that may have changed what is stored."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.service.log import log
from forerun.service.requests.record import current
from forerun.service.stores.keys import Key

LONGEST_PATH = 200


async def audited(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, key: Key | None
) -> None:
    """Let an application answer a request, and log it when that has ended.

    The line has the time, identifier, name and tenant of the key, method, path, status, bytes of
    the body that were received, and the identifier of the request, which the answer repeats in its
    header `X-Request-ID`. A fault, which is answered elsewhere, is logged with status 500.

    Args:
        app: the application.
        scope: the request.
        receive: gives the parts of the request.
        send: takes the parts of the answer.
        key: the key of the request; None where the service asks for none.
    """
    status, received_bytes, record = 500, 0, current()

    async def received() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        return message

    async def noted(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await app(scope, received, noted)
    finally:
        log().info(
            "write",
            key=None if key is None else key.id,
            key_name=None if key is None else key.name,
            tenant=None if key is None else key.tenant,
            method=scope["method"],
            path=scope["path"][:LONGEST_PATH],
            status=status,
            bytes=received_bytes,
            request_id=None if record is None else record.request_id,
        )
