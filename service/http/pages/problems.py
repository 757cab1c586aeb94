"""A page for each kind of problem."""

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.problems import kinds

router = page_router()


@router.get("/problems/{slug}")
async def problem(slug: str) -> HTMLResponse:
    """The meaning of a kind of problem."""
    meanings = kinds()
    if slug not in meanings:
        raise HTTPException(404, "Not Found")
    return rendered("problem_kind.html", f"/problems/{slug}", slug=slug, meaning=meanings[slug])
