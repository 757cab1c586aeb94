"""Answers to a list of requests of `POST /v1/predict`, each of which may be wrong by itself."""

from collections.abc import Callable, Mapping

from pydantic import ValidationError

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


def written(answer: PredictionOut | Problem) -> bytes:
    """An answer, or the problem in its place, as JSON."""
    return content(answer) if isinstance(answer, Problem) else answer.model_dump_json().encode()


def answers_in(
    given: Mapping[str, object],
    in_use: InUse,
    device_named: Callable[[str], Device],
    graph_named: Callable[[str], OperatorGraph],
) -> list[PredictionOut | Problem]:
    """The answer to each request in order, or a problem in its place; all are predicted in one go.

    Args:
        given: where a request stands, such as `/lines/7` -> its content, or why there is none.
        in_use: the predictor in use.
        device_named: name -> device; raises `UnknownDevice`.
        graph_named: digest or name -> graph; raises `UnknownGraph`.
    """
    found: dict[str, PredictionOut | Problem] = {}
    asked: dict[str, Question] = {}
    for where, own in given.items():
        try:
            if isinstance(own, InputError):
                raise own
            request = PredictIn.model_validate(own)
            asked[where] = question_of(request, device_named, graph_named, in_use.loaded.predictor)
        except ValidationError as error:
            found[where] = unfit(error.errors(), where)
        except InputError as error:
            found[where] = problem_of(error, where)
    outcomes = answers_to(list(asked.values()), in_use)
    for where, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, InputError):
            found[where] = problem_of(outcome, where)
        else:
            found[where] = outcome
    return [found[where] for where in given]
