"""The reference of the HTTP endpoints: Swagger UI at `/docs`, and Redoc at `/redoc`."""

from starlette.responses import HTMLResponse

from forerun.service.http.pages.rendering import page_router, rendered

POLICY = "Content-Security-Policy"
STYLES = {"style-src 'self'": "style-src 'self' 'unsafe-inline'"}
"""What both libraries need besides: they write style elements into the page."""

router = page_router()


@router.get("/docs")
async def docs() -> HTMLResponse:
    """The endpoints with their schemas, and a form to try each."""
    return _reference("docs")


@router.get("/redoc")
async def redoc() -> HTMLResponse:
    """The endpoints with their schemas, for reading."""
    return _reference("redoc")


def _reference(library: str) -> HTMLResponse:
    page = rendered("endpoints.html", f"/{library}", library=library)
    for strict, needed in STYLES.items():
        page.headers[POLICY] = page.headers[POLICY].replace(strict, needed)
    return page
