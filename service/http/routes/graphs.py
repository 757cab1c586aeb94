"""POST /v1/graphs: upload a network once, and refer to it by its digest."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from forerun.data.graph import OperatorGraph
from forerun.features.operators.query_table import graph_table
from forerun.service.answers.answer import unknown_operators
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.http.uploads import BINARY, graph_in, received
from forerun.service.limits.wording import readable
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.prediction import LARGEST_BATCH, GraphOut

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
        int | None, Query(ge=1, le=2**20, description="size of free sequence dimensions")
    ] = None,
) -> GraphOut:
    """Read an ONNX file or an operator graph and store its operators, without weights."""
    async with received(request, state.settings) as file:

        def kept() -> GraphOut:
            graph = graph_in(file, batch_size=batch_size, sequence_length=sequence_length)
            answers.graphs.put(graph)
            return described(graph)

        return await state.run(kept)


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
    )
