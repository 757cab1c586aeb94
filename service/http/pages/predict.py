"""The page *Predict*: what a network costs on several devices."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import HTMLResponse

from forerun.service.http.answers import Answers
from forerun.service.http.pages.predict_answer import METRICS, batch_points, device_answers
from forerun.service.http.pages.predict_charts import (
    batch_chart,
    estimate_chart,
    parts_chart,
    roofline_chart,
)
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_form import RunForm
from forerun.service.http.pages.run_page import form_context
from forerun.service.http.routes.graphs import described
from forerun.service.http.state import TheAnswers, TheState

router = page_router()


@router.get("/")
async def predict_page(
    request: Request, form: Annotated[RunForm, Query()], answers: TheAnswers, state: TheState
) -> HTMLResponse:
    """The start page: a form, and the answer to what the address asks."""
    origin = str(request.base_url).rstrip("/")

    def page() -> HTMLResponse:
        context = _answer(form, answers, origin)
        if asks_for_part(request):
            return rendered("predict_answer.html", "/", **context)
        return rendered("predict.html", "/", **context, **form_context(form, answers, "/"))

    return await state.run(page)


def _answer(form: RunForm, answers: Answers, origin: str) -> dict[str, Any]:
    """The context of `predict_answer.html`."""
    if form.graph is None:
        return {"form": form, "found": []}
    found = device_answers(form, answers)
    points = batch_points(form, answers)
    rooflines = map(roofline_chart, found)
    parts = (
        parts_chart(found, "breakdown_ms", "Where the time goes", "ms"),
        parts_chart(found, "breakdown_mib", "What takes memory", "MiB"),
    )
    return {
        "form": form,
        "found": found,
        "metrics": METRICS,
        "network": described(answers.graphs.get(form.graph)),
        "bound": "",
        "bars": [c for c in (estimate_chart(name, found) for name in METRICS) if c],
        "curves": [batch_chart(points, form.batch_size, rate) for rate in (False, True)],
        "parts": [c for c in parts if c],
        "rooflines": [c for c in rooflines if c],
        "as_curl": as_curl(form, origin),
        "as_python": as_python(form),
    }


def as_curl(form: RunForm, origin: str) -> str:
    """Lines of a shell that ask the same over HTTP: the first device of the form, by digest."""
    asked = form.asked(form.devices[0]).model_dump(exclude_unset=True, exclude_none=True)
    return f"curl -H 'Content-Type: application/json' {origin}/v1/predict -d '{json.dumps(asked)}'"


def as_python(form: RunForm) -> str:
    """Lines of Python that ask the same about a file."""
    given: Mapping[str, Any] = {
        "device": form.devices[0] if len(form.devices) == 1 else form.devices,
        **form.model_dump(exclude_unset=True, exclude={"graph", "title", "devices"}),
        "batch_size": form.batch_size,
        "precision": form.precision,
    }
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    return f'import forerun\n\nforerun.predict(\n    "model.onnx",\n{arguments})'
