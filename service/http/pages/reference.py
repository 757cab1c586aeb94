"""Pages of reference: the HTTP endpoints by Swagger UI and by Redoc, and the kinds of problems."""

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.problems import kinds

POLICY = "Content-Security-Policy"
STYLES, ANY_STYLES = "style-src 'self'", "style-src 'self' 'unsafe-inline'"
"""What pages may use as a style, and what the pages of endpoints may, whose libraries write style
elements into the page."""

router = page_router()


@router.get("/docs")
async def docs() -> HTMLResponse:
    """The endpoints with their schemas, and a form to try each."""
    return _endpoints("docs")


@router.get("/redoc")
async def redoc() -> HTMLResponse:
    """The endpoints with their schemas, for reading."""
    return _endpoints("redoc")


@router.get("/problems/{slug}")
async def problem(slug: str) -> HTMLResponse:
    """The meaning of a kind of problem."""
    meanings = kinds()
    if slug not in meanings:
        raise HTTPException(404, "Not Found")
    return rendered("problem_kind.html", f"/problems/{slug}", slug=slug, meaning=meanings[slug])


def _endpoints(library: str) -> HTMLResponse:
    page = rendered("endpoints.html", f"/{library}", library=library)
    page.headers[POLICY] = page.headers[POLICY].replace(STYLES, ANY_STYLES)
    return page
