"""Questions of a file, answered in shards: one shard is a job of an engine, on any machine."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from forerun.data.errors import InputError
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question
from forerun.service.answers.requested import question_of
from forerun.service.loading import adaptation_here
from forerun.service.problems import content, problem_of, unfit
from forerun.service.schemas.prediction import PredictIn
from forerun.service.settings import Settings
from forerun.service.stores.graphs import GraphStore, graphs_of

if TYPE_CHECKING:
    from forerun.models.answers.served_models import InUse
    from forerun.service.stores.devices import DeviceStore

MOST: Final = 1_000
"""Questions of a shard, which is answered in one pass: the same on every engine."""


class NotJson(InputError):
    """A line of the file is not JSON."""

    slug = "not-json"


class OtherAnswers(InputError):
    """A machine of the cluster would answer otherwise than this one."""

    slug = "other-answers"


def shards(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines of each shard; empty lines are left out."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while shard := list(islice(numbered, MOST)):
        yield shard


def identity() -> str:
    """What answers depend on besides questions: the predictors in use and registered devices."""
    _, devices, in_use = _here()
    own = (d.model_dump_json() for d in devices.catalog.devices if d.origin == "registered")
    sheets = hashlib.sha256("\n".join(sorted(own)).encode()).hexdigest()[:8]
    return f"{in_use.loaded.version}/{sheets}"


def answered(lines: Sequence[tuple[int, str]], expected: str) -> tuple[list[bytes], int]:
    """The answer to each question as JSON, or a problem in its place.

    Args:
        lines: numbers of lines, and requests of `POST /v1/predict` as JSON, which need not be
            valid.
        expected: `identity` of the machine that asks.

    Returns:
        The answers, and the number of problems among them.

    Raises:
        OtherAnswers: this machine has another predictor, other measurements or other devices.
    """
    found = identity()
    if found != expected:
        raise OtherAnswers(
            f"A machine of the cluster answers with {found}, and this one with {expected}: give "
            "all machines the same version of forerun, and one FORERUN_HOME or database."
        )
    graphs, devices, in_use = _here()
    contents: list[bytes] = []
    asked: list[tuple[int, Question]] = []
    for row, (number, line) in enumerate(lines):
        where = f"/lines/{number}"
        contents.append(b"")
        try:
            given = PredictIn.model_validate(_parsed(line, number))
            question = question_of(given, devices.get, graphs.get, in_use.loaded.predictor)
        except ValidationError as error:
            contents[row] = content(unfit(error.errors(), where))
        except InputError as error:
            contents[row] = content(problem_of(error, where))
        else:
            asked.append((row, question))
    outcomes = answers_to([question for _, question in asked], in_use)
    problems = len(lines) - len(asked)
    for (row, _), outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, InputError):
            contents[row] = content(problem_of(outcome, f"/lines/{lines[row][0]}"))
            problems += 1
        else:
            contents[row] = outcome.model_dump_json().encode()
    return contents, problems


def _parsed(line: str, number: int) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"Line {number} is not JSON: {str(error)[:200]}") from None


@lru_cache(maxsize=1)
def _here() -> "tuple[GraphStore, DeviceStore, InUse]":
    """Graphs, devices and the predictor of this process, which are read once."""
    settings = Settings.load()
    adaptation, devices = adaptation_here(settings)
    graphs = graphs_of(settings)
    return graphs, devices, adaptation.current()
