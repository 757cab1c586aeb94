"""What every answer of the service must hold, whatever was asked."""

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx

from forerun.models.kernels.kernel_times import SHORTEST_S
from forerun.service.problems import MEDIA_TYPE
from tests.fuzz.asked import Asked

UNAVAILABLE = (503, 507)
"""Statuses from 500 on that are no fault: not ready or too busy, and no room on the disk."""

LONGEST_DETAIL = 1_500
"""Characters of the explanation of a refusal."""

INTERNALS = ("Traceback", 'File "', " object at 0x", "forerun/service")
NO_NUMBERS = (b">nan<", b">inf<", b">None<", b"nan ms", b"inf ms")
MEASURED = ("/v1/devices", "/v1/graphs")
"""Paths that repeat what was given, not predictions."""


def broken(path: str, status: int, kind: str, content: bytes) -> list[str]:
    """The promises that an answer breaks, one sentence each.

    Args:
        path: path that was asked.
        status: HTTP status of the answer.
        kind: content type of the answer.
        content: body of the answer.
    """
    try:
        return list(_broken(path, status, kind.partition(";")[0], content))
    except ValueError as error:
        return [f"not JSON with finite numbers: {error}"]


def promises_broken_by(asked: Asked, answer: httpx.Response) -> list[str]:
    """The promises that the answer to a request breaks."""
    kind = answer.headers.get("content-type", "")
    return broken(asked.path, answer.status_code, kind, answer.content)


def _broken(path: str, status: int, kind: str, content: bytes) -> Iterator[str]:
    if status >= 500 and status not in UNAVAILABLE:
        yield f"status {status}: {content[:300]!r}"
    elif status >= 400 and kind != "text/html":
        yield from _of_refusal(status, kind, content)
    elif status == 204:
        if content:
            yield f"an answer without content has some: {content[:300]!r}"
    elif kind == "application/json":
        yield from _of_answer(path, content)
    elif kind == "text/html" and any(word in content for word in NO_NUMBERS):
        yield "the page shows a number that is none"


def _of_refusal(status: int, kind: str, content: bytes) -> Iterator[str]:
    if not content:  # a refusal of HEAD
        return
    if kind != MEDIA_TYPE:
        yield f"a refusal in {kind or 'no format'}"
        return
    problem = _strict(content)
    if problem.get("status") != status:
        yield f"the problem has the status {problem.get('status')}"
    yield from _of_problem(problem)


def _of_problem(problem: dict[str, Any]) -> Iterator[str]:
    detail = problem.get("detail", "")
    if not problem.get("title"):
        yield "a problem without a title"
    if not detail.strip() or len(detail) > LONGEST_DETAIL or not detail.isprintable():
        yield f"the detail is not one clear line ({len(detail)} characters): {detail[:300]!r}"
    if any(word in detail for word in INTERNALS):
        yield f"the detail shows internals: {detail[:300]!r}"


def _of_answer(path: str, content: bytes) -> Iterator[str]:
    answer = _strict(content)
    if not path.startswith(MEASURED):
        yield from _of_values("", answer)


def _of_values(where: str, value: Any) -> Iterator[str]:
    """Intervals hold their estimates, nothing is negative, no time is below a kernel launch."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_values(f"{where}[{index}]", item)
    if not isinstance(value, dict):
        return
    if {"detail", "status"} <= value.keys():  # of an item of a batch
        yield from _of_problem(value)
    if {"value", "low", "high"} <= value.keys() and {"unit", "coverage"} & value.keys():
        yield from _of_estimate(where, value)
    for key, item in value.items():
        yield from _of_values(f"{where}.{key}", item)


def _of_estimate(where: str, estimate: dict[str, Any]) -> Iterator[str]:
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    is_free = where.endswith("objective") and str(value) == "0.0"  # at a price of nothing
    if value is not None and value <= 0 and not is_free:
        yield f"{where} is {value}"
    if None not in (value, low, high) and not 0 <= low <= value <= high:
        yield f"{where}: {value} is not within {low} to {high}"
    if where.endswith("latency_ms") and value is not None and value < 1e3 * SHORTEST_S:
        yield f"{where} is {value}, less than one kernel takes"


def _strict(content: bytes) -> Any:
    """JSON without NaN and infinities, not even those of a number with a large exponent."""

    def finite(text: str) -> float:
        if not math.isfinite(float(text)):
            raise ValueError(text)
        return float(text)

    return json.loads(content, parse_float=finite, parse_constant=finite)
