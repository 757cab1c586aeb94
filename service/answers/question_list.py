"""Answers to a list of requests of `POST /v1/predict`, each of which may be wrong by itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.graph import OperatorGraph
from forerun.models.answers.served_models import InUse
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question
from forerun.service.answers.requested import question_of
from forerun.service.problems import Problem, content, problem_of, unfit
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.prediction import PredictIn

Asked = TypeVar("Asked")


def written(answer: BaseModel | bytes) -> bytes:
    """An answer, or the problem in its place, as JSON."""
    if isinstance(answer, bytes):
        return answer
    return content(answer) if isinstance(answer, Problem) else answer.model_dump_json().encode()


def answered_each(
    name: str,
    given: Mapping[int, object],
    read: Callable[[Any], Asked],
    answered: Callable[[list[Asked]], Sequence[Any]],
    *,
    in_body: bool = False,
) -> list[Any]:
    """The answer to each of several requests in order, or a problem in its place.

    Args:
        name: what the requests are, such as `lines`.
        given: number -> content of a request, which need not be valid.
        read: makes a question of a content, or raises `InputError` or `ValidationError`.
        answered: answers, or errors, of those that could be read.
        in_body: whether the requests are a list in a body, so that problems point into it.
    """
    found: dict[int, Any] = {}
    asked: dict[int, Asked] = {}
    for number, own in given.items():
        try:
            asked[number] = read(own)
        except InputError as error:
            found[number] = error
        except ValidationError as error:
            body, at = ({name: {number: own}}, ("body", name, number)) if in_body else (None, ())
            found[number] = unfit(error.errors(), f"/{name}/{number}", body, at)
    found |= zip(asked, answered(list(asked.values())), strict=True)
    return [
        problem_of(found[number], f"/{name}/{number}", (name, number) if in_body else ())
        if isinstance(found[number], InputError)
        else found[number]
        for number in given
    ]


def answers_in(
    name: str,
    given: Mapping[int, object],
    in_use: InUse,
    device_named: Callable[[str], Device],
    graph_named: Callable[[str], OperatorGraph],
) -> list[PredictionOut | Problem]:
    """The answer to each request in order, or a problem in its place; all are predicted in one go.

    Args:
        name: what the requests are, such as `lines`.
        given: number -> content of a request, or why there is none.
        in_use: the predictor in use.
        device_named: name -> device; raises `UnknownDevice`.
        graph_named: digest or name -> graph; raises `UnknownGraph`.
    """

    def read(own: object) -> Question:
        if isinstance(own, InputError):
            raise own
        request = PredictIn.model_validate(own)
        return question_of(request, device_named, graph_named, in_use.loaded.predictor)

    return answered_each(name, given, read, lambda questions: answers_to(questions, in_use))
