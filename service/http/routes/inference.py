"""The Open Inference Protocol, version 2, over HTTP, for KServe and its clients.

There is one model, `forerun`. An element of its input `question` is a request to POST /v1/predict
as JSON text; its outputs are the estimates of the metrics with their intervals, and the whole
answer as JSON text.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError

from forerun import __version__
from forerun.data.errors import BadRequest, InputError
from forerun.data.metrics import METRICS
from forerun.service.http.answers import Answers
from forerun.service.http.limits import JsonRoute
from forerun.service.http.routes.predict import answers_of
from forerun.service.http.schemas import (
    InferIn,
    InferOut,
    LiveOut,
    ModelMetadataOut,
    ReadinessOut,
    ServerMetadataOut,
    TensorIn,
    TensorMetadataOut,
    TensorOut,
)
from forerun.service.http.state import Handler, TheAnswers, TheState
from forerun.service.problems import MEDIA_TYPE, response, response_of, unfit
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.prediction import MOST_IN_BATCH

MODEL: Final = "forerun"
QUESTION: Final = "question"
ANSWER: Final = "answer"
BINARY: Final = "inference-header-content-length"
"""Header of a request whose tensors follow the JSON."""
ENDS: Final[Mapping[str, str]] = {"": "value", "_low": "low", "_high": "high"}
"""Ending of the name of an output -> field of an estimate."""
ESTIMATES: Final[Mapping[str, tuple[str, str]]] = {
    f"{metric.name}{ending}": (metric.name, field)
    for metric in METRICS
    for ending, field in ENDS.items()
}
"""Name of an output -> metric and field of its estimate."""


class UnknownModel(InputError):
    """The protocol's path names another model or version than the one that answers."""

    status = 404


class InferenceRoute(JsonRoute):
    """A route whose problem documents have the member `error` of the protocol as well."""

    async def answered(self, handler: Handler, request: Request) -> Response:
        """The answer, with its problems in the form of the protocol."""
        path = request.url.path
        try:
            return await super().answered(handler, _as_json(request))
        except RequestValidationError as error:
            body = {} if error.body is None else error.body
            return _with_error(response(unfit(error.errors(), path, body)))
        except InputError as error:
            return _with_error(response_of(error, path))


def _as_json(request: Request) -> Request:
    """The request as one of JSON where it names no type, as clients of Triton send it.

    Raises:
        BadRequest: tensors follow the JSON in binary form.
    """
    if BINARY in request.headers:
        raise BadRequest(
            "Binary tensors are not supported here: give `data` (in tritonclient, "
            "binary_data=False)."
        )
    if request.method != "POST" or "content-type" in request.headers:
        return request
    headers = [*request.scope["headers"], (b"content-type", b"application/json")]
    return Request({**request.scope, "headers": headers}, request.receive)


def _with_error(problem: Response) -> Response:
    """The problem document with the member `error`; its other headers stay."""
    document = json.loads(bytes(problem.body))
    headers = {name: value for name, value in problem.headers.items() if name == "retry-after"}
    whole = json.dumps(document | {"error": document["detail"]})
    return Response(whole, problem.status_code, headers, MEDIA_TYPE)


def _version(request: Request) -> str | None:
    """The version that the path names; None where it names none."""
    version = request.path_params.get("version")
    return None if version is None else str(version)


ModelName = Annotated[
    str, Path(description="name of a model", max_length=LONGEST_NAME, examples=["forerun"])
]
TheVersion = Annotated[str | None, Depends(_version)]
router = APIRouter(prefix="/v2", tags=["inference"], route_class=InferenceRoute)


@router.get("")
async def server() -> ServerMetadataOut:
    """Name and version of the server."""
    return ServerMetadataOut(name=MODEL, version=__version__, extensions=[])


@router.get("/health/live")
async def live() -> LiveOut:
    """Whether the process is alive."""
    return LiveOut(live=True)


@router.get("/health/ready")
async def ready(answers: TheAnswers) -> ReadinessOut:
    """Whether questions are answered; the HTTP status is 503 until the predictors are loaded."""
    return ReadinessOut(ready=True)


@router.get("/models/{name}")
@router.get("/models/{name}/versions/{version}", include_in_schema=False)
async def metadata(name: ModelName, answers: TheAnswers, version: TheVersion) -> ModelMetadataOut:
    """Inputs and outputs of a model."""
    texts = [(QUESTION, "BYTES")], [(ANSWER, "BYTES"), *((each, "FP64") for each in ESTIMATES)]
    inputs, outputs = (
        [TensorMetadataOut(name=own, datatype=kind, shape=[-1]) for own, kind in tensors]
        for tensors in texts
    )
    return ModelMetadataOut(
        name=name,
        versions=[_checked(name, version, answers)],
        platform="forerun",
        inputs=inputs,
        outputs=outputs,
    )


@router.get("/models/{name}/ready")
@router.get("/models/{name}/versions/{version}/ready", include_in_schema=False)
async def model_ready(name: ModelName, answers: TheAnswers, version: TheVersion) -> ReadinessOut:
    """Whether a model answers."""
    _checked(name, version, answers)
    return ReadinessOut(ready=True, name=name)


@router.post("/models/{name}/infer")
@router.post("/models/{name}/versions/{version}/infer", include_in_schema=False)
async def infer(
    name: ModelName, asked: InferIn, answers: TheAnswers, state: TheState, version: TheVersion
) -> InferOut:
    """Answer up to 1,000 questions; one that is not valid fails all."""
    current = _checked(name, version, answers)
    questions = _questions(asked)
    wanted = [ANSWER, *ESTIMATES]
    if asked.outputs is not None:
        wanted = list(dict.fromkeys(one.name for one in asked.outputs))
        unknown = [each for each in wanted if each != ANSWER and each not in ESTIMATES]
        if unknown:
            raise BadRequest(f"outputs: there is no output {unknown[0]!r:.80}.")
    found = await state.run(lambda: answers_of(questions, answers, state.telemetry))
    texts = [answer.decode() for answer in found]
    known = [_answer(row, json.loads(text)) for row, text in enumerate(texts)]
    outputs = [
        TensorOut(name=ANSWER, datatype="BYTES", shape=[len(texts)], data=[*texts])
        if each == ANSWER
        else TensorOut(name=each, datatype="FP64", shape=[len(texts)], data=[*_column(each, known)])
        for each in wanted
    ]
    return InferOut(model_name=name, model_version=current, id=asked.id, outputs=outputs)


def _checked(name: str, version: str | None, answers: Answers) -> str:
    """The version in use, which must be the one of the path where that has one."""
    current = answers.adaptation.base_version
    if name != MODEL:
        raise UnknownModel(f"There is no model {name!r:.80}; the one here is {MODEL!r}.")
    if version is not None and version != current:
        raise UnknownModel(f"There is no version {version!r:.80}; the one in use is {current}.")
    return current


def _questions(asked: InferIn) -> list[Any]:
    """The requests to POST /v1/predict that a request for an inference holds."""
    tensor = next((one for one in asked.inputs if one.name == QUESTION), None)
    if tensor is None or len(asked.inputs) > 1:
        raise BadRequest(f"inputs: the one input is {QUESTION!r}.")
    if tensor.datatype != "BYTES":
        raise BadRequest(
            f"inputs: {QUESTION!r} has the datatype BYTES, not {tensor.datatype!r:.80}."
        )
    texts = [*_flat(tensor)]
    size = prod(tensor.shape)
    if size != len(texts):
        raise BadRequest(f"inputs: the shape {tensor.shape} holds {size:,}, not {len(texts):,}.")
    if not 1 <= len(texts) <= MOST_IN_BATCH:
        raise BadRequest(
            f"inputs: {len(texts):,} questions; from 1 to {MOST_IN_BATCH:,} are answered."
        )
    return [_question(row, text) for row, text in enumerate(texts)]


def _flat(tensor: TensorIn) -> Iterator[Any]:
    """The elements, in the order of their rows."""
    elements = tensor.data
    for _ in tensor.shape[1:]:
        if all(isinstance(each, list) for each in elements):
            elements = list(chain.from_iterable(elements))
    return iter(elements)


def _question(row: int, text: Any) -> Any:
    if not isinstance(text, str):
        raise BadRequest(f"question {row}: an element is a text, which holds JSON.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"question {row}: it is not valid JSON: {error}.") from None


def _answer(row: int, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, which is no problem."""
    if "metrics" not in answer:
        raise BadRequest(f"question {row}: {answer['detail']}")
    return answer


def _column(name: str, answers: list[dict[str, Any]]) -> Iterator[float | None]:
    """One field of the estimates of a metric; None where it is not known."""
    metric, field = ESTIMATES[name]
    for answer in answers:
        estimate = answer["metrics"].get(metric)
        yield None if estimate is None else estimate[field]
