"""Render templates as pages, with the headers and error pages that all pages share."""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, ValidationError
from starlette.responses import HTMLResponse, Response

from forerun.data.errors import InputError
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import FILTERS
from forerun.service.http.state import Handler, TheAnswers, ThreadRoute
from forerun.service.problems import Problem, http_error, problem_of, unfit

Form = TypeVar("Form", bound=BaseModel)
STATIC = Path(__file__).resolve().parents[1] / "static"
"""Folder of the style sheet and the scripts, served under `/static`."""

NAVIGATION = (
    ("/", "Predict"),
    ("/compare", "Compare"),
    ("/power", "Power"),
    ("/llm", "Language models"),
    ("/plan", "What to run"),
    ("/training", "Training"),
    ("/neighbours", "Neighbours"),
    ("/circuits", "Circuits"),
    ("/leaderboard", "Leaderboard"),
    ("/devices", "Devices"),
    ("/coverage", "Coverage"),
)
"""Path and title of every page of the navigation, in order."""

DESCRIPTION = "What a workload will cost on given hardware: time, memory, power."
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Vary": "HX-Request, HX-History-Restore-Request",
}
"""The policy of every page: nothing is loaded from another host, and no inline script runs. No
cache takes a part for the page of the same address."""


@cache
def environment() -> Environment:
    """The templates of `http/templates`; all text is escaped, and an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("forerun.service.http", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(navigation=NAVIGATION, asset=asset, subject="", description=DESCRIPTION)
    return made


def rendered(template: str, path: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A page or a part of one.

    Args:
        template: file name in `http/templates`.
        path: path of the page in the navigation, which is marked as the current one.
        status: HTTP status.
        context: variables of the template. The title of the page begins with the `subject`, and
            `description` is what searches show of it.
    """
    content = environment().get_template(template).render(path=path, **context)
    if template.endswith("_answer.html") and "subject" in context:  # htmx takes it for the page's
        content = f"<title>{escape(context['subject'])} · forerun</title>{content}"
    return HTMLResponse(content, status, HEADERS)


def asks_for_part(request: Request) -> bool:
    """Whether htmx asks for a part that it puts into a page, rather than for a whole page."""
    asks = request.headers.get("hx-request") == "true"
    return asks and request.headers.get("hx-history-restore-request") != "true"


def page_or_part(
    request: Request,
    name: str,
    path: str,
    answer: Mapping[str, Any],
    form: Callable[[], Mapping[str, Any]],
) -> HTMLResponse:
    """The page of a form with its answer, or the answer alone where htmx asks for a part.

    Args:
        request: the request.
        name: what the names of both templates, `NAME.html` and `NAME_answer.html`, begin with.
        path: path of the page in the navigation.
        answer: variables of the answer; `origin` is added, the address of the service.
        form: gives the variables of the form, which a part does not need.
    """
    own = {**answer, "origin": str(request.base_url).rstrip("/")}
    if asks_for_part(request):
        return rendered(f"{name}_answer.html", path, **own)
    return rendered(f"{name}.html", path, **own, **form(), page=name)


def form_page(
    path: str,
    name: str,
    kind: type[Form],
    answer: Callable[[Form, Answers], Mapping[str, Any]],
    fields: Callable[[Form, Answers], Mapping[str, Any]],
) -> APIRouter:
    """A router with the page of a form, as `page_or_part` renders it off the event loop.

    Args:
        path: path of the page.
        name: as for `page_or_part`.
        kind: schema of the form.
        answer: makes the variables of the answer.
        fields: makes those of the form.
    """
    router = page_router()

    @router.get(path, name=name)
    def page(
        request: Request,
        form: Annotated[kind, Query()],  # type: ignore[valid-type]
        answers: TheAnswers,
    ) -> HTMLResponse:
        more = partial(fields, form, answers)
        return page_or_part(request, name, path, answer(form, answers), more)

    return router


@cache
def asset(name: str) -> str:
    """The address of a file under `static`; it changes with the content, so it may be cached."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"/static/{name}?v={digest[:8]}"


class PageRoute(ThreadRoute):
    """A route whose errors are pages, or one line for a request of htmx."""

    async def answered(self, handler: Handler, request: Request) -> Response:
        """The answer, with errors of the input rendered by `problem.html`."""
        try:
            return await handler(request)
        except InputError as error:
            return problem_page(request, problem_of(error))
        except (RequestValidationError, ValidationError) as error:
            return problem_page(request, unfit(error.errors(), name_of=_labelled))


async def other_page(request: Request, error: Exception) -> Response:
    """The answer to an error of HTTP, such as an unknown path: a page where a browser asks."""
    answer = await http_error(request, error)
    if "text/html" not in request.headers.get("accept", ""):
        return answer
    page = problem_page(request, Problem.model_validate_json(bytes(answer.body)))
    page.headers.update({k: v for k, v in answer.headers.items() if k == "allow"})
    return page


def page_router() -> APIRouter:
    """A router of pages: they are left out of the OpenAPI document, and their errors are pages."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


@cache
def labels() -> dict[str, str]:
    """Name of a field -> its label in the forms."""
    found: dict[str, str] = {}
    for file in (STATIC.parent / "templates").glob("*.html"):
        text = file.read_text(encoding="utf-8")
        for pattern in (r'<label for="(\w+)">([^<{]+)<', r'options\("(\w+)", "([^"]+)"'):
            found.update(re.findall(pattern, text))
    return found


def _field_of(path: str) -> str:
    """The field of the form that a path such as `query.batch_size` leads to."""
    return path.removeprefix("query.").partition(".")[0]


def _labelled(path: str) -> str:
    name = _field_of(path)
    return labels().get(name, name.replace("_", " ").capitalize())


def problem_page(
    request: Request,
    problem: Problem,
    field_of: Callable[[str], str] = _field_of,
    template: str = "problem.html",
    more: Callable[[], Mapping[str, Any]] = dict,
) -> HTMLResponse:
    """A page with what is wrong, or its lines for htmx, before the answer that stays.

    Args:
        request: what was asked.
        problem: what is wrong with it.
        field_of: path of a field of the question -> name of the form's field, at which the line is
            shown.
        template: the page.
        more: gives further variables of the page.
    """
    given = request.query_params.multi_items()
    said = re.search("'([^']+)'", problem.detail)
    nearest = {
        name: "?" + urlencode([(key, value.replace(said[1], name)) for key, value in given])
        for name in problem.did_you_mean or ()
        if said
    }
    lines = [
        (field_of(one.parameter or (one.pointer or "#")[2:].replace("/", ".")), one.detail)
        for one in problem.errors or ()
    ]
    context: dict[str, Any] = {"lines": lines or [("", problem.detail)], "nearest": nearest}
    if not asks_for_part(request):
        own = {**context, **more(), "problem": problem}
        return rendered(template, request.url.path, problem.status, **own)
    line = rendered("problem_line.html", request.url.path, **context)  # htmx shows successes alone
    # The answer to the question before stays, with its address.
    line.headers.update({"HX-Reswap": "afterbegin", "HX-Push-Url": "false"})
    return line
