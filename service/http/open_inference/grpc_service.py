"""GRPCInferenceService: the Open Inference Protocol over gRPC, by the answers of that over HTTP."""

import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import grpc
import msgspec
import numpy as np
from fastapi import FastAPI
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles
from grpc import aio

from forerun.data.errors import BadRequest, InputError
from forerun.service.http.in_process import InnerAnswer, InnerRequest, answer_of, nothing
from forerun.service.http.limits import ON_THE_LOOP_BYTES
from forerun.service.http.routes.inference import UnknownModel
from forerun.service.http.state import State
from forerun.service.schemas.prediction import MOST_IN_BATCH
from forerun.service.settings import Settings

COMPILED: Final = Path(__file__).parent / "open_inference.binpb"
SERVICE: Final = "inference.GRPCInferenceService"
CONTENTS: Final[Mapping[str, str]] = {"FP64": "fp64_contents", "BYTES": "bytes_contents"}
"""Datatype of a tensor of an answer -> the field of its elements."""
LENGTH: Final = struct.Struct("<I")
"""Number of bytes of an element of BYTES, before it in raw form."""


def _messages() -> Mapping[str, Any]:
    """Name of each message -> its class, in a pool of its own.

    Packages of other servers and clients have messages of the same names in the pool that is the
    usual one, which takes no second one.
    """
    files = FileDescriptorSet.FromString(COMPILED.read_bytes()).file
    pool = DescriptorPool()
    for each in files:
        pool.Add(each)
    found = GetMessageClassesForFiles([each.name for each in files], pool)
    return MappingProxyType({name.rpartition(".")[2]: cls for name, cls in found.items()})


MESSAGES: Final = _messages()


def document_of(request: Any) -> dict[str, Any]:
    """The inference request over HTTP that a `ModelInferRequest` stands for.

    Raises:
        BadRequest: a tensor is not of shape (n,) with n from 1 to 1,000, or its content does not
            fit its shape and its datatype.
    """
    raws: Sequence[bytes] = request.raw_input_contents
    if raws and len(raws) != len(request.inputs):
        raise BadRequest("raw_input_contents: it needs one entry for each of the inputs.")
    tensors = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
            "data": _elements(tensor, raws[position] if raws else None),
        }
        for position, tensor in enumerate(request.inputs)
    ]
    named = {"id": request.id} if request.id else {}
    wanted = [{"name": output.name} for output in request.outputs]
    return {**named, "inputs": tensors, **({"outputs": wanted} if wanted else {})}


def response_of(document: Mapping[str, Any], *, raw: bool) -> Any:
    """The `ModelInferResponse` of an inference response over HTTP.

    Args:
        document: the response, whose null elements become not a number (NaN).
        raw: whether the elements are in raw form.
    """
    response = MESSAGES["ModelInferResponse"](
        model_name=document["model_name"],
        model_version=document["model_version"],
        id=document.get("id") or "",
    )
    for output in document["outputs"]:
        name, datatype, shape = output["name"], output["datatype"], output["shape"]
        tensor = response.outputs.add(name=name, datatype=datatype, shape=shape)
        if datatype == "BYTES":
            elements: list[Any] = [text.encode() for text in output["data"]]
        else:
            elements = [nan if each is None else each for each in output["data"]]
        if raw:
            response.raw_output_contents.append(_raw(datatype, elements))
        else:
            getattr(tensor.contents, CONTENTS[datatype]).extend(elements)
    return response


def _elements(tensor: Any, raw: bytes | None) -> list[str]:
    """The elements of an input tensor, as JSON has them."""
    where, datatype = f"inputs: {tensor.name!r:.80}", tensor.datatype
    if len(tensor.shape) != 1 or not 1 <= tensor.shape[0] <= MOST_IN_BATCH:
        raise BadRequest(
            f"{where} has the shape {list(tensor.shape)}; it must be [n] for n questions, up to "
            f"{MOST_IN_BATCH:,}."
        )
    if datatype != "BYTES":
        raise BadRequest(f"{where} has the datatype {datatype!r:.80}; it must be BYTES.")
    found = list(tensor.contents.bytes_contents) if raw is None else _split(raw, where)
    if len(found) != tensor.shape[0]:
        raise BadRequest(f"{where} has {len(found)} elements in place of {tensor.shape[0]}.")
    try:
        return [each.decode() for each in found]
    except UnicodeDecodeError:
        raise BadRequest(f"{where} holds bytes that are not UTF-8 text.") from None


def _split(raw: bytes, where: str) -> list[bytes]:
    """The elements of BYTES in raw form, no more than one over the largest number."""
    found: list[bytes] = []
    start = 0
    while start < len(raw) and len(found) <= MOST_IN_BATCH:
        end = start + LENGTH.size
        if end <= len(raw):
            end += LENGTH.unpack_from(raw, start)[0]
        if not start + LENGTH.size <= end <= len(raw):
            raise BadRequest(f"{where}: its raw content ends within an element.")
        found.append(raw[start + LENGTH.size : end])
        start = end
    return found


def _raw(datatype: str, elements: Sequence[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(LENGTH.pack(len(each)) + each for each in elements)
    return np.asarray(elements, "<f8").tobytes()


T = TypeVar("T")
PATHS: Final[Mapping[str, str]] = {
    "ServerLive": "/v2/health/live",
    "ServerReady": "/v2/health/ready",
    "ServerMetadata": "/v2",
    "ModelReady": "{model}/ready",
    "ModelMetadata": "{model}",
}
"""Call -> the path that answers it."""
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

    async def about(self, name: str, request: Any, context: Context) -> Any:
        """What a call of `PATHS` asks about the server, or about a model."""
        path, response = PATHS[name], MESSAGES[f"{name}Response"]
        if "{model}" in path:
            path = path.format(model=await _path(request.name, request.version, context))
        found = json.loads(await self._answered("GET", path, context, nothing))
        fields = response.DESCRIPTOR.fields_by_name
        return response(**{field: found[field] for field in fields if field in found})

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
        **{name: partial(service.about, name) for name in PATHS},
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
