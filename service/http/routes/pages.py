"""The front page, and a page for each kind of problem."""

from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from forerun.service.problems import kinds

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=HTMLResponse)
async def front() -> HTMLResponse:
    """The front page: a form for predictions, and links."""
    page = files("forerun.service.http") / "templates" / "front.html"
    return HTMLResponse(page.read_text("utf-8"))


@router.get("/problems/{slug}", response_class=HTMLResponse)
async def problem(slug: str) -> HTMLResponse:
    """The meaning of a kind of problem."""
    meanings = kinds()
    if slug not in meanings:
        raise HTTPException(404, "Not Found")
    return HTMLResponse(f"<!doctype html><title>{slug}</title><h1>{slug}</h1><p>{meanings[slug]}")
