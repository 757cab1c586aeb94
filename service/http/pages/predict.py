"""The page *Predict*: what a network costs on several devices."""

from starlette.responses import HTMLResponse

from forerun.service.http.pages.rendering import page_router, rendered

router = page_router()


@router.get("/")
async def predict_page() -> HTMLResponse:
    """The start page: a form, and the answer to what the address asks."""
    return rendered("predict.html", "/")
