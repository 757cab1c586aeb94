"""POST /v1/graphs: upload a network once, and refer to it by its digest."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from forerun.data.graph import OperatorGraph
from forerun.features.operators.query_table import graph_table
from forerun.features.readers.input_sizes import MAX_SIZE, InputSizes, parse_shapes
from forerun.models.answers.answer import unknown_operators
from forerun.models.answers.wording import readable
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.http.uploads import BINARY, graph_in, received
from forerun.service.schemas.bound_dimensions import bound_dimensions
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.prediction import LARGEST_BATCH, GraphOut
from forerun.service.schemas.run_options import IMAGE_SIZE, MOST_SHAPES, SHAPE

router = APIRouter(prefix="/v1/graphs", tags=["graphs"])
Digest = Annotated[str, Path(description="digest from POST /v1/graphs", max_length=LONGEST_NAME)]


@router.post("", status_code=201, openapi_extra=BINARY)
async def upload(
    request: Request,
    answers: TheAnswers,
    state: TheState,
    batch_size: Annotated[
        int, Query(ge=1, le=LARGEST_BATCH, description="size of free batch dimensions")
    ] = 1,
    sequence_length: Annotated[
        int | None, Query(ge=1, le=2**20, description="size of free sequence dimensions; else 128")
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
async def delete_graph(digest: Digest, answers: TheAnswers, state: TheState) -> None:
    """Delete an uploaded graph; 409 while measurements that are in use name it."""
    await state.adapt(lambda: answers.delete_graph(digest))


@router.get("/{digest}")
async def show(digest: Digest, answers: TheAnswers, state: TheState) -> GraphOut:
    """A summary of an uploaded graph."""
    return await state.run(lambda: described(answers.graphs.get(digest)))


def described(graph: OperatorGraph) -> GraphOut:
    """The summary of a graph: numbers of operators, parameters and FLOPs."""
    table = graph_table(graph)
    parameters = graph.parameter_elements
    if parameters is None:
        parameters = int(table.parameter_elements.sum())
    return GraphOut(
        digest=graph.digest,
        operators=len(graph),
        parameters=parameters,
        flops=float((table.flops * table.repeat).sum()),
        batch_size=graph.batch_size,
        source=readable(graph.source),
        unknown_operators=unknown_operators(graph),
        bound_dimensions=bound_dimensions(graph),
    )
