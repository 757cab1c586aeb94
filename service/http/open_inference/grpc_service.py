"""GRPCInferenceService: the Open Inference Protocol over gRPC, by the answers of that over HTTP."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import grpc
import msgspec
from fastapi import FastAPI
from grpc import aio

from forerun.data.errors import InputError
from forerun.service.http.json_bodies import ON_THE_LOOP_BYTES
from forerun.service.http.open_inference.in_process import (
    InnerAnswer,
    InnerRequest,
    answer_of,
)
from forerun.service.http.open_inference.messages import (
    MESSAGES,
    SERVICE,
    document_of,
    response_of,
)
from forerun.service.http.routes.inference import UnknownModel
from forerun.service.http.state import State
from forerun.service.settings import Settings

T = TypeVar("T")
Context = Any
"""`grpc.aio.ServicerContext`."""
Handler = Callable[[Any, Context], Awaitable[Any]]
PASSED_ON: Final = frozenset({"authorization", "traceparent", "tracestate", "x-request-id"})
"""Metadata of a call that become headers of the request."""
RETURNED: Final = frozenset({b"x-request-id", b"retry-after"})
"""Headers of the answer that become trailing metadata."""
CODES: Final[Mapping[int, grpc.StatusCode]] = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""HTTP status -> gRPC's; of all others below 500 INVALID_ARGUMENT, and INTERNAL."""


@asynccontextmanager
async def served(app: FastAPI, state: State) -> AsyncIterator[None]:
    """Answer on the port of the settings to the block's end, in this process.

    Several processes share a port: the system gives each connection to one of them.

    Raises:
        RuntimeError: the port is in use.
    """
    settings = state.settings
    server = aio.server(
        options=[
            ("grpc.so_reuseport", 1),
            ("grpc.max_receive_message_length", settings.max_request_mib * 2**20),
        ],
        maximum_concurrent_rpcs=settings.requests_in_flight,
    )
    server.add_generic_rpc_handlers([_handlers(InferenceService(app, state))])
    server.add_insecure_port(address_of(settings))
    await server.start()
    yield
    await server.stop(settings.graceful_seconds)


def address_of(settings: Settings) -> str:
    """Host and port as gRPC writes them."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.grpc_port}"


def code_of(status: int) -> grpc.StatusCode:
    """The code of an HTTP status of 400 or above."""
    other = grpc.StatusCode.INVALID_ARGUMENT if status < 500 else grpc.StatusCode.INTERNAL
    return CODES.get(status, other)


class InferenceService:
    """The calls of the service; each is a request to the HTTP application of this process.

    Args:
        app: the application.
        state: has the lanes on which large messages are converted.
    """

    def __init__(self, app: FastAPI, state: State) -> None:
        self._app, self._state = app, state

    async def server_live(self, request: Any, context: Context) -> Any:
        """ServerLive: whether the process is alive."""
        return MESSAGES["ServerLiveResponse"](**await self._got("/v2/health/live", context))

    async def server_ready(self, request: Any, context: Context) -> Any:
        """ServerReady: whether questions are answered."""
        found = await self._got("/v2/health/ready", context)
        return MESSAGES["ServerReadyResponse"](ready=found["ready"])

    async def server_metadata(self, request: Any, context: Context) -> Any:
        """ServerMetadata: name and version of the server."""
        return MESSAGES["ServerMetadataResponse"](**await self._got("/v2", context))

    async def model_ready(self, request: Any, context: Context) -> Any:
        """ModelReady: whether a model can be asked."""
        path = await _path(request.name, request.version, context)
        found = await self._got(f"{path}/ready", context)
        return MESSAGES["ModelReadyResponse"](ready=found["ready"])

    async def model_metadata(self, request: Any, context: Context) -> Any:
        """ModelMetadata: inputs and outputs of a model."""
        path = await _path(request.name, request.version, context)
        return MESSAGES["ModelMetadataResponse"](**await self._got(path, context))

    async def model_infer(self, request: Any, context: Context) -> Any:
        """ModelInfer: answers as tensors; raw where the inputs are raw."""
        path = await _path(request.model_name, request.model_version, context)
        raw = bool(request.raw_input_contents)

        async def body() -> bytes:
            size = request.ByteSize()
            return await self._converted(size, lambda: msgspec.json.encode(document_of(request)))

        content = await self._answered("POST", f"{path}/infer", context, body)
        try:
            return await self._converted(
                len(content), lambda: response_of(json.loads(content), raw=raw)
            )
        except InputError as error:  # too much waits
            await context.abort(code_of(error.status), str(error))

    async def _got(self, path: str, context: Context) -> dict[str, Any]:
        async def nothing() -> bytes:
            return b""

        found: dict[str, Any] = json.loads(await self._answered("GET", path, context, nothing))
        return found

    async def _answered(
        self, method: str, path: str, context: Context, body: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """The body of the answer; an error ends the call."""
        headers = [
            (name.encode(), text.encode() if isinstance(text, str) else text)
            for name, text in context.invocation_metadata() or ()
            if name in PASSED_ON
        ]
        request = InnerRequest(method, path, headers, _client(context.peer()), body)
        answer = await answer_of(self._app, request)
        context.set_trailing_metadata(_trailing(answer))
        if answer.status != 200:
            await context.abort(code_of(answer.status), json.loads(answer.content)["detail"])
        return answer.content

    async def _converted(self, size: int, work: Callable[[], T]) -> T:
        """Do at once what is small, and the rest on a thread."""
        return work() if size <= ON_THE_LOOP_BYTES else await self._state.upload(work)


async def _path(name: str, version: str, context: Context) -> str:
    if not name or "/" in name + version:
        error = UnknownModel(f"There is no model {name!r:.80}.")
        await context.abort(code_of(error.status), str(error))
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")


def _trailing(answer: InnerAnswer) -> tuple[tuple[str, str], ...]:
    found = ((name.decode(), value.decode()) for name, value in answer.headers)
    return tuple((name, value) for name, value in found if name.encode() in RETURNED)


def _client(peer: str) -> str:
    """The address in gRPC's name of a client, such as ipv4:127.0.0.1:41234."""
    address = peer.partition(":")[2].rpartition(":")[0]
    return address.removeprefix("%5B").removesuffix("%5D").strip("[]")


def _handlers(service: InferenceService) -> grpc.GenericRpcHandler:
    calls: Mapping[str, Handler] = {
        "ServerLive": service.server_live,
        "ServerReady": service.server_ready,
        "ServerMetadata": service.server_metadata,
        "ModelReady": service.model_ready,
        "ModelMetadata": service.model_metadata,
        "ModelInfer": service.model_infer,
    }
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            name: grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=MESSAGES[f"{name}Request"].FromString,
                response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
            )
            for name, call in calls.items()
        },
    )
