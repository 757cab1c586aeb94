"""Render templates as pages, with the headers and error pages that all pages share."""

import hashlib
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError
from starlette.responses import HTMLResponse, Response

from forerun.data.errors import InputError
from forerun.service.http.pages.chart import FILTERS
from forerun.service.problems import Problem, problem_of, unfit

STATIC = Path(__file__).resolve().parents[1] / "static"
"""Folder of the style sheet and the scripts, served under `/static`."""

NAVIGATION = (
    ("/", "Predict"),
    ("/compare", "Compare"),
    ("/power", "Power"),
    ("/llm", "Language models"),
    ("/neighbours", "Neighbours"),
    ("/circuits", "Circuits"),
    ("/leaderboard", "Leaderboard"),
    ("/devices", "Devices"),
    ("/coverage", "Coverage"),
)
"""Path and title of every page of the navigation, in order."""

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
    made.globals.update(navigation=NAVIGATION, asset=asset)
    return made


def rendered(template: str, path: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A page or a part of one.

    Args:
        template: file name in `http/templates`.
        path: path of the page in the navigation, which is marked as the current one.
        status: HTTP status.
        context: variables of the template.
    """
    content = environment().get_template(template).render(path=path, **context)
    return HTMLResponse(content, status, HEADERS)


def asks_for_part(request: Request) -> bool:
    """Whether htmx asks for a part that it puts into a page, rather than for a whole page."""
    asks = request.headers.get("hx-request") == "true"
    return asks and request.headers.get("hx-history-restore-request") != "true"


@cache
def asset(name: str) -> str:
    """The address of a file under `static`; it changes with the content, so it may be cached."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"/static/{name}?v={digest[:8]}"


class PageRoute(APIRoute):
    """A route whose errors are pages, or one line for a request of htmx."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with errors of the input rendered by `problem.html`."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except InputError as error:
                return _problem_page(request, problem_of(error))
            except (RequestValidationError, ValidationError) as error:
                return _problem_page(request, unfit(error.errors()))

        return handler


def page_router() -> APIRouter:
    """A router of pages: they are left out of the OpenAPI document, and their errors are pages."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


def _problem_page(request: Request, problem: Problem) -> HTMLResponse:
    if asks_for_part(request):  # htmx puts only successful answers into the page
        return rendered("problem_line.html", request.url.path, problem=problem)
    return rendered("problem.html", request.url.path, problem.status, problem=problem)
