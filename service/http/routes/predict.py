"""POST /v1/predict: latency, memory, power and energy of a workload on a device."""

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request, Response
from starlette.exceptions import HTTPException

from forerun.data.device import Device
from forerun.data.errors import CannotStore, InputError, UnknownDevice
from forerun.service.answers.question import Question, question_about
from forerun.service.answers.question_list import answered_each, written
from forerun.service.http.answers import Answers
from forerun.service.http.limits import ON_THE_LOOP_BYTES, JsonRoute, bounded
from forerun.service.http.routes.graphs import BINARY, graph_in, received
from forerun.service.http.state import Handler, State, TheAnswers, TheState, json_response, state_of
from forerun.service.http.telemetry import Telemetry
from forerun.service.requests.record import stage
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.prediction import EXAMPLES, BatchIn, BatchOut, PredictIn
from forerun.service.schemas.run_options import ModelQuestion

JSON = (b"content-type", b"application/json")
OF_A_FILE: Final = (
    "send this request once for each device; or send the file once to POST /v1/graphs, and each "
    "device with the digest of the graph as an item to POST /v1/predict:batch"
)
"""How to ask about several devices where the body of a request is a model file."""


class PredictRoute(JsonRoute):
    """The route of single predictions, which answers what is valid without FastAPI's validation.

    That takes longer than a cached answer. Whatever is unusual or wrong is left to it, and so its
    problems and the OpenAPI document are FastAPI's.
    """

    async def answered(self, handler: Handler, request: Request) -> Response:
        """What is known at once; where it is not, the answer by FastAPI's handler."""
        own = bounded(request)
        answer = await _at_once(own)
        return await super().answered(handler, own) if answer is None else json_response(answer)


single = APIRouter(prefix="/v1", tags=["predict"], route_class=PredictRoute)
router = APIRouter(prefix="/v1", tags=["predict"], route_class=JsonRoute)


@single.post("/predict", response_model=PredictionOut)
async def predict(
    asked: Annotated[PredictIn, Body(openapi_examples=EXAMPLES)],
    answers: TheAnswers,
    state: TheState,
) -> Response:
    """Latency, memory, power and energy of one workload on one device, with 90 % intervals."""
    return json_response(await _answered(asked, answers, state))


@router.post("/predict:batch", response_model=BatchOut)
def predict_batch(asked: BatchIn, answers: TheAnswers, state: TheState) -> Response:
    """Answers to up to 1,000 requests, in order; an invalid request gets a problem of its own."""
    return batch_of(answers_of(asked.items, answers, state.telemetry))


@router.post("/predict/model", response_model=PredictionOut, openapi_extra=BINARY)
async def predict_model(
    request: Request,
    answers: TheAnswers,
    state: TheState,
    asked: Annotated[ModelQuestion, Query()],
) -> Response:
    """One prediction for an uploaded model: the body is an ONNX file or an operator graph."""
    sheet = await state.run(lambda: _one_device(asked.device, answers))
    set_ups, sizes = asked.set_ups(), asked.input_sizes()
    async with received(request, state.settings) as file:

        def answer() -> bytes:
            with stage("read"):
                graph = graph_in(file, sizes)
            # The answer does not need a stored graph; only later requests by digest do.
            with suppress(CannotStore):
                answers.graphs.put(graph)
            question = question_about(asked.query(graph, sheet, set_ups), explain=asked.explain)
            return _known_or_new(question, answers, state.telemetry)

        return json_response(await state.upload(answer))


def _one_device(name: str, answers: Answers) -> Device:
    """The device that a query parameter names.

    Raises:
        UnknownDevice: no device has that name; where it lists several, the message says how to ask
            about these with a file as the body.
    """
    try:
        return answers.devices.get(name)
    except UnknownDevice as error:
        if not error.listed:
            raise
        raise UnknownDevice(name, (), listed=error.listed, remedy=OF_A_FILE) from None


async def _at_once(request: Request) -> bytes | None:
    """The answer to a valid request of usual form and size; None for all others."""
    scope, state = request.scope, await state_of(request)
    answers = state.answers
    if answers is None or scope["query_string"] or JSON not in scope["headers"]:
        return None
    body = await request.body()
    if len(body) > ON_THE_LOOP_BYTES:
        return None
    known = answers.bodies.answer(body)
    if known is not None:
        state.telemetry.known.inc()
        return known
    try:
        asked = PredictIn.model_validate(await request.json())
    except (ValueError, HTTPException):
        return None
    return await _answered(asked, answers, state, body)


async def _answered(
    asked: PredictIn, answers: Answers, state: State, body: bytes | None = None
) -> bytes:
    """Answer from the cache on the event loop; everything else runs on a worker thread.

    Args:
        asked: the request.
        answers: the answers.
        state: the lanes of work.
        body: the bytes of the request, under which a cached answer is found the next time.
    """
    in_use = answers.at_hand(asked)
    if in_use is not None:
        question = answers.question(asked, in_use)
        in_use = answers.held_for(question, in_use)
        before = None if in_use is None else answers.before(question, in_use)
        if in_use is not None and before is not None:
            state.telemetry.known.inc()
            if body is not None:
                answers.bodies.keep(body, asked, question, in_use, before)
            return before
        return await state.run(lambda: _new(question, answers, state.telemetry))
    return await state.run(lambda: _known_or_new(answers.question(asked), answers, state.telemetry))


def _known_or_new(question: Question, answers: Answers, telemetry: Telemetry) -> bytes:
    """The cached answer, or a new prediction."""
    before = answers.before(question)
    if before is not None:
        telemetry.known.inc()
        return before
    return _new(question, answers, telemetry)


def _new(question: Question, answers: Answers, telemetry: Telemetry) -> bytes:
    answer = answers.predict(question)
    telemetry.new.inc()
    return answer


def answers_of(items: Sequence[Any], answers: Answers, telemetry: Telemetry) -> list[bytes]:
    """The answer to each request of a batch as JSON, or its problem document.

    New ones are predicted in one call.

    Args:
        items: requests, which need not be valid.
        answers: the answers.
        telemetry: counts cached and new ones.
    """
    in_use = answers.adaptation.current()

    def read(item: Any) -> Question:
        return answers.question(PredictIn.model_validate(item), in_use)

    def answered(questions: Sequence[Question]) -> list[bytes | InputError]:
        asked = {question.key: question for question in questions}
        found: dict[Hashable, bytes | InputError] = {
            key: before
            for key, question in asked.items()
            if (before := answers.before(question, answers.in_use(question, in_use))) is not None
        }
        new = [key for key in asked if key not in found]
        telemetry.known.inc(len(questions) - len(new))
        predicted = answers.predict_all([asked[key] for key in new])
        telemetry.new.inc(sum(isinstance(outcome, bytes) for outcome in predicted))
        found |= zip(new, predicted, strict=True)
        return [found[question.key] for question in questions]

    given = dict(enumerate(items))
    return [*map(written, answered_each("items", given, read, answered, in_body=True))]


def batch_of(contents: Iterable[bytes]) -> Response:
    """The JSON of a `BatchOut` with these items."""
    return json_response(b'{"items":[' + b",".join(contents) + b"]}")
