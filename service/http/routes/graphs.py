"""POST /v1/graphs: upload a network once, and refer to it by its digest; how uploads are read."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import IO, Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from forerun.data.errors import ModelTooLarge, UnreadableModel
from forerun.data.file_store import TEMPORARY, writing_to
from forerun.data.graph import OperatorGraph
from forerun.features.memory.weights import parameters
from forerun.features.operators.query_table import graph_table
from forerun.features.readers import read_graph, refuse_foreign
from forerun.features.readers.input_sizes import MAX_SIZE, InputSizes, parse_shapes
from forerun.features.readers.onnx import OnnxReader
from forerun.features.readers.operator_json import OperatorJsonReader
from forerun.models.answers.answer import unknown_operators
from forerun.models.answers.wording import readable
from forerun.service.http.state import TheAnswers, TheState, ThreadRoute, on_lane
from forerun.service.schemas.answers import bound_dimensions
from forerun.service.schemas.fields import LARGEST_BATCH, LONGEST_NAME
from forerun.service.schemas.prediction import GraphOut
from forerun.service.schemas.run_options import IMAGE_SIZE, MOST_SHAPES, SHAPE
from forerun.service.settings import Settings

BINARY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "an ONNX file (weights may be left out), or a graph in forerun.graph/1",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}
IN_MEMORY = 8 * 2**20
HEAD = 2**20
NO_MODEL = (
    "it is neither an ONNX model nor an operator graph in JSON. `forerun trace FILE -o graph.json` "
    "makes such a graph of .pt2 programs and of Hugging Face config.json files."
)


@asynccontextmanager
async def received(request: Request, settings: Settings) -> AsyncIterator[IO[bytes]]:
    """The request body as a file, which is on disk when it is large.

    Raises:
        ModelTooLarge: the body is over the limit; the rest of it is not read.
        UnreadableModel: the body is empty, or its first bytes are not those of a model file.
        DiskFull, CannotStore: it is large, and there is no room for it in the temporary folder.
    """
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        limit_mib, total = 0, 0
        async for chunk in request.stream():
            if not chunk:
                continue
            limit_mib = limit_mib or _limit_mib(chunk, settings)
            total += len(chunk)
            if total > limit_mib * 2**20:
                raise ModelTooLarge(
                    "the upload",
                    f"it is over {limit_mib} MiB. Leave out the weights of an ONNX file "
                    "(onnx.save_model with save_as_external_data=True): only shapes are needed.",
                )
            with writing_to(TEMPORARY):
                file.write(chunk)
        if not total:
            raise UnreadableModel(
                "the upload", "it is empty; send the file with --data-binary @FILE."
            )
        yield file


def graph_in(file: IO[bytes], sizes: InputSizes) -> OperatorGraph:
    """Read the graph from an uploaded ONNX file or operator graph; no code of a model is run.

    Raises:
        BadShape: a shape or the image size contradicts the model's inputs.
        UnreadableModel, ModelTooLarge: the file is not readable or too large.
    """
    file.seek(0)
    content = file.read()
    if not any(r().accepts(None, content[:HEAD]) for r in (OnnxReader, OperatorJsonReader)):
        raise UnreadableModel("the upload", NO_MODEL)
    return read_graph(content, **asdict(sizes))


def _limit_mib(start: bytes, settings: Settings) -> int:
    """The size limit by the format of the first bytes, because only ONNX files hold weights."""
    refuse_foreign(start, "the upload")
    if OnnxReader().accepts(None, start):
        return settings.max_upload_mib
    if start.lstrip()[:1] in (b"{", b""):
        return settings.max_request_mib
    raise UnreadableModel("the upload", NO_MODEL)


router = APIRouter(prefix="/v1/graphs", tags=["graphs"], route_class=ThreadRoute)
Digest = Annotated[str, Path(description="digest from POST /v1/graphs", max_length=LONGEST_NAME)]


@router.post("", status_code=201, openapi_extra=BINARY)
async def upload(
    request: Request,
    answers: TheAnswers,
    state: TheState,
    batch_size: Annotated[
        int, Query(ge=1, le=LARGEST_BATCH, description="size of dynamic batch dimensions")
    ] = 1,
    sequence_length: Annotated[
        int | None,
        Query(ge=1, le=2**20, description="size of dynamic sequence dimensions; 128 if absent"),
    ] = None,
    image_size: Annotated[int | None, Query(ge=1, le=MAX_SIZE, description=IMAGE_SIZE)] = None,
    shape: Annotated[list[str], Query(max_length=MOST_SHAPES, description=SHAPE)] = [],  # noqa: B006
) -> GraphOut:
    """Read an ONNX file or an operator graph and store its operators, without weights."""
    sizes = InputSizes(batch_size, sequence_length, image_size, parse_shapes(shape))
    async with received(request, state.settings) as file:

        def kept() -> GraphOut:
            graph = graph_in(file, sizes)
            answers.graphs.put(graph)
            return described(graph)

        return await state.upload(kept)


@router.delete("/{digest}", status_code=204)
@on_lane("adapt")
def delete_graph(digest: Digest, answers: TheAnswers) -> None:
    """Delete an uploaded graph; 409 while measurements that are in use name it."""
    answers.delete_graph(digest)


@router.get("/{digest}")
def show(digest: Digest, answers: TheAnswers) -> GraphOut:
    """A summary of an uploaded graph."""
    return described(answers.graphs.get(digest))


def described(graph: OperatorGraph) -> GraphOut:
    """The summary of a graph: numbers of operators, parameters and FLOPs."""
    table = graph_table(graph)
    return GraphOut(
        digest=graph.digest,
        operators=len(graph),
        parameters=parameters(graph),
        flops=float((table.flops * table.repeat).sum()),
        batch_size=graph.batch_size,
        source=readable(graph.source),
        unknown_operators=unknown_operators(graph),
        bound_dimensions=bound_dimensions(graph),
    )
