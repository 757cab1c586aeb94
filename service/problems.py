"""Errors as RFC 9457 problem documents: one shape, stable types, no internals."""

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from forerun.data.errors import InputError, UnknownDevice

MEDIA_TYPE = "application/problem+json"
LONGEST_VALUE = 80


class Problem(BaseModel):
    """What went wrong, where, and how to mend it."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="stable identifier of the kind of problem")
    title: str = Field(description="the kind of problem in words")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="what, where and how to mend it")
    instance: str | None = Field(default=None, description="path of the request")


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The request is wrong; the problem says what and how to mend it.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


def problem_of(error: InputError, path: str | None = None) -> Problem:
    """The problem document of an error that the asker can mend."""
    extra = {}
    if isinstance(error, UnknownDevice):
        extra["did_you_mean"] = error.did_you_mean
    return Problem(
        type=f"/problems/{error.slug}",
        title=(type(error).__doc__ or "Bad input.").splitlines()[0].rstrip("."),
        status=error.status,
        detail=str(error),
        instance=path,
        **extra,
    )


def kinds() -> dict[str, str]:
    """Every slug with what it means."""
    found = {"bad-request": "The request does not fit the schema."}
    waiting: list[type[InputError]] = [InputError]
    while waiting:
        cls = waiting.pop()
        found[cls.slug] = (cls.__doc__ or "").splitlines()[0]
        waiting.extend(cls.__subclasses__())
    return found


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""
    app.add_exception_handler(InputError, _input_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _fault)


def response(problem: Problem) -> Response:
    """The document as an HTTP response."""
    return JSONResponse(
        problem.model_dump(exclude_none=True), status_code=problem.status, media_type=MEDIA_TYPE
    )


async def _input_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    return response(problem_of(error, request.url.path))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        given = repr(item.get("input"))[:LONGEST_VALUE]
        lines.append(f"{where}: {item['msg']} (given {given})")
    return response(
        Problem(
            type="/problems/bad-request",
            title="The request does not fit the schema",
            status=422,
            detail="; ".join(lines[:5]),
            instance=request.url.path,
        )
    )


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = response(
        Problem(
            type="about:blank",
            title=str(error.detail),
            status=error.status_code,
            detail=f"{request.method} {request.url.path}: {error.detail}. /docs lists all paths.",
            instance=request.url.path,
        )
    )
    answer.headers.update(error.headers or {})
    return answer


async def _fault(request: Request, error: Exception) -> Response:
    structlog.get_logger("forerun").error(
        "fault", path=request.url.path, method=request.method, exc_info=error
    )
    return response(
        Problem(
            type="/problems/fault",
            title="A fault of ours",
            status=500,
            detail="The service failed on this request; its log says why.",
            instance=request.url.path,
        )
    )
