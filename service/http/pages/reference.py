"""Pages of reference: the HTTP endpoints by Swagger UI, and the kinds of problems."""

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse

from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.problems import kinds

POLICY = "Content-Security-Policy"
STYLES, ANY_STYLES = "style-src 'self'", "style-src 'self' 'unsafe-inline'"
"""What pages may use as a style, and what the page of endpoints may, whose library writes style
elements into the page."""

router = page_router()


@router.get("/docs")
async def docs() -> HTMLResponse:
    """The endpoints with their schemas, and a form to try each."""
    page = rendered("endpoints.html", "/docs")
    page.headers[POLICY] = page.headers[POLICY].replace(STYLES, ANY_STYLES)
    return page


@router.get("/redoc")
async def redoc() -> RedirectResponse:
    """The former page of Redoc: the endpoints stand at `/docs`."""
    return RedirectResponse("/docs", 308)


@router.get("/problems/{slug}")
async def problem(slug: str) -> HTMLResponse:
    """The meaning of a kind of problem."""
    meanings = kinds()
    if slug not in meanings:
        raise HTTPException(404, "Not Found")
    return rendered("problem_kind.html", f"/problems/{slug}", slug=slug, meaning=meanings[slug])
