"""Messages of the Open Inference Protocol over gRPC, and the JSON documents that they stand for."""

import struct
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

from forerun.data.errors import BadRequest
from forerun.service.schemas.prediction import MOST_IN_BATCH

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
        raise BadRequest(f"{where} holds bytes that are not text in UTF-8.") from None


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
