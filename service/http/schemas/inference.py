"""Requests and answers of the Open Inference Protocol, version 2, over HTTP."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from forerun.service.schemas.prediction import EXAMPLE

EXAMPLE_INFERENCE: dict[str, Any] = {
    "inputs": [
        {"name": "question", "datatype": "BYTES", "shape": [1], "data": [json.dumps(EXAMPLE)]}
    ]
}


Size = Annotated[int, Field(ge=0, le=1_000_000)]


class _Open(BaseModel):
    """The protocol lets clients and servers add parameters of their own."""

    model_config = ConfigDict(extra="ignore")


class TensorIn(_Open):
    """A tensor of a request."""

    name: str = Field(description="name of the input")
    datatype: str = Field(description="type of the elements, such as BYTES")
    shape: list[Size] = Field(description="sizes of the dimensions", max_length=8)
    data: list[Any] = Field(description="the elements, which may be nested as the shape is")


class WantedIn(_Open):
    """An output that a request asks for."""

    name: str = Field(description="name of the output")


class InferIn(_Open):
    """A request for an inference."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [EXAMPLE_INFERENCE]})

    id: str | None = Field(default=None, description="identifier, which is returned")
    inputs: list[TensorIn] = Field(description="the inputs", min_length=1, max_length=16)
    outputs: list[WantedIn] | None = Field(
        default=None, description="names of the outputs; all where none are given", max_length=64
    )


class TensorOut(BaseModel):
    """A tensor of an answer; null stands for what is not known."""

    name: str = Field(description="name of the output")
    datatype: str = Field(description="type of the elements: FP64, or BYTES for text")
    shape: list[int] = Field(description="sizes of the dimensions")
    data: list[float | str | None] = Field(description="the elements")


class InferOut(BaseModel):
    """The answer to a request for an inference."""

    model_name: str = Field(description="the model")
    model_version: str = Field(description="version of the predictors in use")
    id: str | None = Field(description="identifier of the request")
    outputs: list[TensorOut] = Field(description="the outputs")


class TensorMetadataOut(BaseModel):
    """Name and type of a tensor; -1 is a dimension of any size."""

    name: str = Field(description="name of the tensor")
    datatype: str = Field(description="type of the elements")
    shape: list[int] = Field(description="sizes of the dimensions")


class ModelMetadataOut(BaseModel):
    """What a model takes and gives."""

    name: str = Field(description="the model")
    versions: list[str] = Field(description="the version that answers")
    platform: str = Field(description="what answers")
    inputs: list[TensorMetadataOut] = Field(description="inputs")
    outputs: list[TensorMetadataOut] = Field(description="outputs")


class ServerMetadataOut(BaseModel):
    """The server."""

    name: str = Field(description="name of the server")
    version: str = Field(description="its version")
    extensions: list[str] = Field(description="extensions of the protocol: none")


class LiveOut(BaseModel):
    """Whether the process is alive."""

    live: bool = Field(description="true")


class ReadinessOut(BaseModel):
    """Whether the server, or a model, answers questions."""

    ready: bool = Field(description="true; another HTTP status otherwise")
    name: str | None = Field(default=None, description="the model; null for the server")
