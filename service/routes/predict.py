"""POST /v1/predict: what will this workload cost on that device?"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from forerun.data.errors import InputError
from forerun.data.software import Layout, Runtime, Software
from forerun.data.workload import NumberFormat, Phase
from forerun.features.readers import read_graph
from forerun.service.answers import Answers
from forerun.service.problems import Problem, problem_of
from forerun.service.schemas import (
    LARGEST_BATCH,
    BatchIn,
    BatchOut,
    NetworkIn,
    PredictIn,
    PredictionOut,
)
from forerun.service.state import State, TheAnswers, TheState
from forerun.service.upload import BINARY, read_body

router = APIRouter(prefix="/v1", tags=["predict"])


@router.post("/predict", response_model=PredictionOut)
async def predict(asked: PredictIn, answers: TheAnswers, state: TheState) -> Response:
    """Latency, memory, power and energy of one workload on one device, with 90 % intervals."""
    return Response(await _answered(asked, answers, state), media_type="application/json")


@router.post("/predict:batch", response_model=BatchOut)
async def predict_batch(asked: BatchIn, answers: TheAnswers, state: TheState) -> Response:
    """Up to 1,000 questions at once, in order; a wrong one gets its own problem."""
    content = await state.run(lambda: b",".join(_item(item, answers) for item in asked.items))
    return Response(b'{"items":[' + content + b"]}", media_type="application/json")


@router.post("/predict/model", response_model=PredictionOut, openapi_extra=BINARY)
async def predict_model(
    request: Request,
    answers: TheAnswers,
    state: TheState,
    device: Annotated[str, Query(description="name of a device", examples=["l4"])],
    batch_size: Annotated[int, Query(ge=1, le=LARGEST_BATCH, description="samples")] = 1,
    precision: Annotated[NumberFormat, Query(description="number format")] = "fp32",
    phase: Annotated[Phase, Query(description="inference or training")] = "inference",
    runtime: Annotated[Runtime, Query(description="how the graph is executed")] = "eager",
    layout: Annotated[Layout, Query(description="layout of image tensors")] = "nchw",
    sequence_length: Annotated[
        int | None, Query(ge=1, le=2**20, description="bound to free sequence dimensions")
    ] = None,
) -> Response:
    """One question in one call: the body is an ONNX file or an operator graph."""
    answers.catalog.get(device)
    content = await read_body(request, state.settings.max_upload_mib)
    graph = await state.run(
        lambda: read_graph(content, batch_size=batch_size, sequence_length=sequence_length)
    )
    digest = await state.run(lambda: answers.graphs.put(graph))
    asked = PredictIn(
        workload=NetworkIn(
            kind="network", graph=digest, batch_size=batch_size, precision=precision, phase=phase
        ),
        device=device,
        software=Software(runtime=runtime, layout=layout),
    )
    return Response(await _answered(asked, answers, state), media_type="application/json")


async def _answered(asked: PredictIn, answers: Answers, state: State) -> bytes:
    """From memory on the event loop; everything else on a worker."""
    if _is_at_hand(asked, answers):
        question = answers.question(asked)
        before = answers.before(question)
        if before is not None:
            state.telemetry.answers.labels("yes").inc()
            return before
        answer = await state.run(lambda: answers.predict(question))
    else:
        answer = await state.run(lambda: answers.predict(answers.question(asked)))
    state.telemetry.answers.labels("no").inc()
    return answer


def _is_at_hand(asked: PredictIn, answers: Answers) -> bool:
    given = asked.workload
    if not isinstance(given, NetworkIn):
        return True
    return isinstance(given.graph, str) and answers.graphs.held(given.graph) is not None


def _item(item: Any, answers: Answers) -> bytes:
    try:
        question = answers.question(PredictIn.model_validate(item))
        return answers.before(question) or answers.predict(question)
    except InputError as error:
        return problem_of(error).model_dump_json(exclude_none=True).encode()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = Problem(
            type="/problems/bad-request",
            title="The request does not fit the schema",
            status=422,
            detail=f"{where}: {first['msg']}",
        )
        return problem.model_dump_json(exclude_none=True).encode()
