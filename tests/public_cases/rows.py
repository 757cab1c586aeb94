"""Published values and their questions, read from `cases.jsonl` and `sources.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One published value.

    Attributes:
        id: unique name.
        group: kind of question, such as `serving` or `training memory`.
        source: key of `sources.json`.
        published: the value as the source prints it.
        metric: metric of the answer that the value is compared with.
        value: the published value in `unit`.
        unit: unit of the metric.
        conditions: what the source says of the run, and what had to be assumed.
        ask: path of the endpoint.
        question: body of the request; a graph is a name of the service, `cases/NAME` of
            `graphs.py`, or `FOLDER/NAME` of a table that comes with the package.
    """

    id: str
    group: str
    source: str
    published: str
    metric: str
    value: float
    unit: str
    conditions: str
    ask: str
    question: Mapping[str, Any]


@cache
def cases() -> tuple[Case, ...]:
    """All rows, in the order of the file."""
    lines = (HERE / "cases.jsonl").read_text().splitlines()
    return tuple(Case(**json.loads(line)) for line in lines)


@cache
def sources() -> Mapping[str, Mapping[str, str]]:
    """Key -> title, address, date of access, and whether rows of it train a predictor."""
    content: dict[str, dict[str, str]] = json.loads((HERE / "sources.json").read_text())
    return content


@cache
def exceptions() -> Mapping[str, str]:
    """Id of a row that is outside an interval of grade A -> the likely reason."""
    content: dict[str, str] = json.loads((HERE / "exceptions.json").read_text())
    return content
