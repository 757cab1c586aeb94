"""Errors as RFC 9457 problem documents with stable types and without internals."""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from forerun.data.described import Described
from forerun.data.errors import BadRequest, InputError
from forerun.service.log import log
from forerun.service.requests.faults import ABOUT_FIELDS, LONGEST_VALUE, excerpt, message_of
from forerun.service.requests.field_names import name_in, written_as
from forerun.service.requests.record import current

T = TypeVar("T", bound=BaseModel)
MEDIA_TYPE = "application/problem+json"
LONGEST_DETAIL = 1_200
MOST_LINES = 5
MOST_FIELDS = 100
UNFIT = "The request is not valid"
STATUSES: Mapping[int, tuple[str, str]] = {
    400: ("bad-request", UNFIT),
    404: ("not-found", "There is no such path"),
    405: ("method-not-allowed", "The path does not take this method"),
    413: ("request-too-large", "The request is over the size limit"),
    422: ("bad-request", UNFIT),
    500: ("fault", "A fault of ours"),
}
"""HTTP status -> slug and title of problems that do not come from an `InputError`."""


class WrongField(HTTPException):
    """What is wrong with one field of a body before the body is compared with its schema."""

    def __init__(self, status: int, field: tuple[str | int, ...], why: str) -> None:
        """
        Args:
            status: HTTP status.
            field: keys and positions from the body to the field.
            why: what is wrong with it.
        """
        self.field, self.why = field, why
        where = ".".join(str(step)[:LONGEST_VALUE] for step in ("body", *field))
        super().__init__(status, f"{where}: {why}")

    def inside(self, *place: str | int) -> "WrongField":
        """The same of a body that holds this one.

        Args:
            place: keys and positions from that body to this one.
        """
        return WrongField(self.status_code, (*place, *self.field), self.why)


def one_line(text: str) -> str:
    """The text as one line of bounded length, with escape sequences where it is not printable.

    What is repeated of a request may hold any character, and be of any length.
    """
    shown = (
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text[: LONGEST_DETAIL + 1]
    )
    line = "".join(shown)
    return line if len(line) <= LONGEST_DETAIL else f"{line[:LONGEST_DETAIL]} ..."


Line = Annotated[str, AfterValidator(one_line)]


class FieldProblem(Described):
    """What is wrong with one field of the body, or with one parameter."""

    pointer: str | None = None
    """the field of the body, as a JSON pointer after #, such as #/workload/graph; # for the whole
    body"""
    parameter: str | None = None
    """name of the parameter of the path or of the query"""
    detail: Line
    """what is wrong with it"""


class Problem(Described):
    """What went wrong, where, and how to correct it."""

    model_config = ConfigDict(extra="allow")

    type: str
    """stable identifier of the kind of problem; its page explains the kind"""
    title: str
    """the kind of problem, in words"""
    status: int
    """HTTP status"""
    detail: Line
    """what went wrong, where, and how to correct it"""
    instance: str | None = None
    """path of the request; in a batch, the item as /items/0"""
    errors: list[FieldProblem] | None = None
    """the wrong fields, the first 100 of them"""
    did_you_mean: list[str] | None = None
    """similar names"""
    request_id: str | None = None
    """identifier of the request in the log"""


def _schema() -> dict[str, Any]:
    """The schema of a problem in one piece, which may stand anywhere in another document."""
    schema = Problem.model_json_schema()
    field = schema.pop("$defs")[FieldProblem.__name__]
    schema["properties"]["errors"]["anyOf"][0]["items"] = field
    return schema


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": _schema()}},
    }
    for status, text in (
        ("4XX", "The request is wrong; the problem says what is wrong and how to correct it."),
        ("5XX", "Not the request's fault, or what it asks for is not installed or has no room."),
    )
}


def problem_of(
    error: InputError, where: str | None = None, at: Sequence[str | int] = ()
) -> Problem:
    """The problem document of an error that the client can correct.

    Args:
        error: the error.
        where: path of the request; in a batch, the item.
        at: keys and positions from the body to the item of a batch.
    """
    field = (*at, *error.field)
    fields = [FieldProblem(pointer=pointer(field), detail=str(error))]
    return Problem(
        type=f"/problems/{error.slug}",
        title=(type(error).__doc__ or "Bad input.").splitlines()[0].rstrip("."),
        status=error.status,
        detail=str(error),
        instance=where,
        errors=fields if field else None,
        did_you_mean=getattr(error, "did_you_mean", None),
    )


def valid(schema: type[T], given: object, name_of: Callable[[str], str] | None = None) -> T:
    """Plain data, such as the content of a file, as a schema has it.

    Args:
        schema: the schema.
        given: the data.
        name_of: as for `unfit`.

    Raises:
        BadRequest: it does not fit the schema; the message names the fields, and pydantic's error
            is its cause.
    """
    try:
        return schema.model_validate(given)
    except ValidationError as error:
        raise BadRequest(unfit(error.errors(), name_of=name_of).detail) from error


def unfit(
    errors: Iterable[Any],
    where: str | None = None,
    body: Any = None,
    at: Sequence[str | int] = (),
    name_of: Callable[[str], str] | None = None,
) -> Problem:
    """The problem document of pydantic's errors: each field's path and the value given.

    Args:
        errors: the errors.
        where: path of the request; in a batch, the item.
        body: body of the request as plain data; None where the errors are not of a request.
        at: keys and positions from the request to what was validated, the first of them `body`;
            empty where the errors' own paths begin so.
        name_of: how what was asked, which is no body, names the field of a path; as the path where
            it is None.
    """
    # A default that depends on an invalid field is not an error by itself.
    own = [item for item in errors if item.get("type") != "default_factory_not_called"]
    several = [_fields(item, body, (*at, *item["loc"]), name_of) for item in own]
    fields = [field for each in several for field in each][:MOST_FIELDS]
    details = [each[0].detail for each in several[:MOST_LINES]]
    more = f"; and {len(own) - MOST_LINES} more" if len(own) > MOST_LINES else ""
    listed = None if body is None and name_of is None else fields
    return _plain(422, "; ".join(details) + more, where, errors=listed)


def pointer(field: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a field as the fragment of a URI."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in field)
    return "#" + "".join(f"/{quote(step, safe='~', errors='replace')}" for step in steps)


def content(problem: Problem) -> bytes:
    """The document as ASCII JSON, because text in a request need not be valid Unicode."""
    return json.dumps(problem.model_dump(exclude_none=True), separators=(",", ":")).encode()


def response(problem: Problem) -> Response:
    """The document as an HTTP response, with the identifier of the request that is handled."""
    record = current()
    if record is not None:
        problem = problem.model_copy(update={"request_id": record.request_id})
    return Response(content(problem), status_code=problem.status, media_type=MEDIA_TYPE)


def response_of(error: InputError, where: str | None) -> Response:
    """The error's document as an HTTP response, which says when to ask again if that may help."""
    answer = response(problem_of(error, where))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        answer.headers["Retry-After"] = str(retry_after_s)
    return answer


def kinds() -> dict[str, str]:
    """Slug -> meaning, for every kind of problem."""
    meanings = {slug: f"{title}." for slug, title in STATUSES.values()}
    waiting: list[type[InputError]] = [InputError]
    while waiting:
        cls = waiting.pop()
        meanings[cls.slug] = (cls.__doc__ or "").splitlines()[0]
        waiting.extend(cls.__subclasses__())
    return meanings


def install(app: FastAPI) -> None:
    """Make an application answer every error with a problem document."""
    app.add_exception_handler(InputError, _input_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _fault)


def too_large(path: str, limit_mib: int) -> Problem:
    """The problem document of a request body over its size limit."""
    return _plain(413, f"The body of {path} may have {limit_mib} MiB; send less at a time.", path)


def _plain(status: int, detail: str, where: str | None, **more: Any) -> Problem:
    slug, title = STATUSES.get(status, ("http-error", f"HTTP status {status}"))
    return Problem(
        type=f"/problems/{slug}", title=title, status=status, detail=detail, instance=where, **more
    )


def _fields(
    item: Mapping[str, Any],
    body: Any,
    loc: Sequence[str | int],
    name_of: Callable[[str], str] | None = None,
) -> list[FieldProblem]:
    """One error of pydantic, with the place of each field that it is about in the request."""
    if item["type"] == "json_invalid":
        where = f"it is not valid JSON{_line_and_column(body, loc[-1])}"
        return [FieldProblem(pointer="#", detail=f"body: {where}: {item['ctx']['error']}")]
    if name_of is not None:
        paths = item["ctx"]["paths"] if item["type"] == ABOUT_FIELDS else [".".join(map(str, loc))]
        return [FieldProblem(parameter=paths[0], detail=_named_line(item, loc, name_of))]
    if body is None or loc[0] != "body":
        named = str(loc[1]) if body is not None and len(loc) > 1 else None
        return [FieldProblem(parameter=named, detail=_line(item, loc))]
    place = place_of(loc[1:], item["type"], body)
    detail = _line(item, ("body", *place), _at(body, place))
    if item["type"] != ABOUT_FIELDS:
        return [FieldProblem(pointer=pointer(place), detail=detail)]
    paths = [path.split(".") for path in item["ctx"]["fields"]]
    request = place[:-1] if place[-1:] == paths[0][:1] else place
    places = [place_of((*request, *path), "missing", body) for path in paths]
    return [FieldProblem(pointer=own, detail=detail) for own in dict.fromkeys(map(pointer, places))]


def place_of(loc: Sequence[str | int], kind: str, body: Any) -> Sequence[str | int]:
    """Keys and positions from the body to the field of an error of pydantic.

    Between them pydantic lists the names of the members of unions, which the body does not have.

    Args:
        loc: keys and positions by pydantic.
        kind: type of the error.
        body: the body as plain data.
    """
    place: list[str | int] = []
    here = body
    held: list[tuple[tuple[str | int, ...], Any]] = [((), body)]
    for step in loc:
        is_key = isinstance(here, dict) and step in here
        if is_key or (isinstance(here, list) and step in range(len(here))):
            place.append(step)
            here = here[step]
            held.append((tuple(place), here))
    if loc and place[-1:] != [loc[-1]]:
        for outer, holder in reversed(held):
            written = written_as(loc, holder) if isinstance(holder, dict) else None
            if written is not None:
                return [*outer, written]
    return (*place, loc[-1]) if kind == "missing" and isinstance(here, dict) and loc else place


def _at(body: Any, place: Iterable[str | int]) -> Any:
    """The value at a place of the body; None where it has none, as of what is missing."""
    for step in place:
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return None
    return body


def _line_and_column(text: Any, position: Any) -> str:
    if not isinstance(text, str) or not isinstance(position, int):
        return ""
    line = text.count("\n", 0, position) + 1
    return f" at line {line}, column {position - text.rfind(chr(10), 0, position)}"


def _line(item: Mapping[str, Any], place: Sequence[str | int], holder: Any = None) -> str:
    """What is wrong where, and what was given.

    Args:
        item: an error of pydantic.
        place: keys and positions of its field.
        holder: the object at that place, where it has further names of fields.
    """
    where = ".".join(str(step)[:LONGEST_VALUE] for step in place)
    given = item.get("input")
    if where == "body" and isinstance(given, bytes):
        return "body: it is not sent as JSON; add the header 'Content-Type: application/json'"
    start = f"{where}: " if where else ""
    if item["type"] == "missing":
        return f"{start}{item['msg']}"
    said = message_of(item, partial(name_in, holder))
    shown = holder if isinstance(holder, dict) else given
    return f"{start}{said} (given {'null' if shown is None else excerpt(shown)})"


def _named_line(
    item: Mapping[str, Any], place: Sequence[str | int], name_of: Callable[[str], str]
) -> str:
    """What is wrong with a field, which has a name of its own; objects are not repeated."""
    said, given = message_of(item, name_of), item.get("input")
    is_named = not place or item["type"] == ABOUT_FIELDS
    start = "" if is_named else f"{name_of('.'.join(map(str, place)))}: "
    return f"{start}{said}" + ("" if isinstance(given, dict) else f" (given {excerpt(given)})")


async def _input_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    return response_of(error, request.url.path)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # A missing body is None, as is what is not a request.
    body = {} if error.body is None else error.body
    return response(unfit(error.errors(), request.url.path, body))


async def http_error(request: Request, error: Exception) -> Response:
    """The problem document of an error of HTTP, such as an unknown path."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if isinstance(error, WrongField):
        said = FieldProblem(pointer=pointer(error.field), detail=error.detail)
        return response(_plain(error.status_code, error.detail, path, errors=[said]))
    hint = " /docs lists all paths." if error.status_code in (404, 405) else ""
    detail = f"{request.method} {path}: {error.detail.rstrip('.')}.{hint}"
    answer = response(_plain(error.status_code, detail, path))
    answer.headers.update(error.headers or {})
    return answer


async def _gone(request: Request, error: Exception) -> Response:
    """The client disconnected, so nobody reads this response."""
    return response(_plain(400, "The connection closed before the body was whole.", None))


async def _fault(request: Request, error: Exception) -> Response:
    record = current()
    number = secrets.token_hex(8) if record is None else record.request_id
    log().error(
        "fault", request_id=number, method=request.method, path=request.url.path, exc_info=error
    )
    detail = f"The service failed on this request; its log says why under {number}."
    answer = response(_plain(500, detail, request.url.path, request_id=number))
    answer.headers["X-Request-ID"] = number  # What answers a fault stands outside of all else.
    return answer
