"""Questions of a file, answered in shards: one shard is a job of an engine, on any machine."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from forerun.data.errors import InputError
from forerun.service.answers.question_list import answers_in, written
from forerun.service.problems import Problem
from forerun.service.python.session import session

MOST: Final = 1_000
"""Questions of a shard, which is answered in one pass: the same on every engine."""


class NotJson(InputError):
    """A line of the file is not JSON."""


class OtherAnswers(InputError):
    """A machine of the cluster would answer otherwise than this one."""


def shards(lines: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines of each shard; empty lines are left out."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while shard := list(islice(numbered, MOST)):
        yield shard


def identity() -> str:
    """What answers depend on besides questions: the predictors in use and registered devices."""
    here = session()
    own = (d.model_dump_json() for d in here.devices.catalog.devices if d.origin == "registered")
    sheets = hashlib.sha256("\n".join(sorted(own)).encode()).hexdigest()[:8]
    return f"{here.in_use.loaded.version}/{sheets}"


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
    own = identity()
    if own != expected:
        raise OtherAnswers(
            f"A machine of the cluster answers with {own}, and this one with {expected}: give "
            "all machines the same version of forerun, and one FORERUN_HOME or database."
        )
    here = session()
    given = {number: _parsed(line, number) for number, line in lines}
    found = answers_in("lines", given, here.in_use, here.devices.get, here.graphs.get)
    return [*map(written, found)], sum(isinstance(one, Problem) for one in found)


def _parsed(line: str, number: int) -> object:
    """The content of a line, or what is wrong with it."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return NotJson(f"Line {number} is not JSON: {str(error)[:200]}")
