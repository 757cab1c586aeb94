"""The page *Predict*: what a network costs on several devices."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import HTMLResponse

from forerun.service.http.answers import Answers
from forerun.service.http.pages import run_form
from forerun.service.http.pages.chart import Chart, label
from forerun.service.http.pages.charts import (
    attribution_chart,
    curve_chart,
    parts_chart,
    roofline_chart,
)
from forerun.service.http.pages.rendering import asks_for_part, form_page, rendered
from forerun.service.http.pages.requests import EXAMPLES
from forerun.service.http.routes.graphs import described
from forerun.service.http.state import TheAnswers
from forerun.service.presets import PREDICT

CURVES = "/curves"


def _answer(form: run_form.RunForm, answers: Answers) -> dict[str, Any]:
    """The context of `predict_answer.html`."""
    if form.graph is None or not form.devices:
        links = run_form.network_presets("/")
        return {"form": form, "found": [], "presets": links, "further": EXAMPLES}
    found = run_form.device_answers(form, answers)
    able = [each for each in found if not each.refusal]
    return {
        "subject": f"{form.named} on {', '.join(label(each.device) for each in found)}",
        "description": "; ".join(
            f"{label(each.device)}: {run_form.in_words(each.answer.metrics)}"
            for each in able
            if each.answer
        ),
        "form": form,
        "found": found,
        "able": able,
        "refused": run_form.refused_runs(form, found, "/", answers),
        "metrics": run_form.METRICS,
        "network": described(answers.graphs.get(form.graph)),
        **_parts(able),
        "as_curl": as_curl(form),
        "as_python": as_python(form),
    }


def _parts(found: Sequence[run_form.DeviceAnswer]) -> dict[str, list[Chart]]:
    """Charts of the parts of time and memory; for every device its operators, and a roofline."""
    times = {label(each.device): each.answer.breakdown_ms for each in found if each.answer}
    memory = {label(each.device): each.answer.breakdown_mib for each in found if each.answer}
    stacked = (
        parts_chart("Where the time goes", "ms", times),
        parts_chart("What takes memory", "MiB", memory),
    )
    charts = {
        "parts": stacked,
        "operators": map(_operators, found),
        "rooflines": map(roofline_chart, found),
    }
    return {name: [c for c in some if c] for name, some in charts.items()}


def _operators(each: run_form.DeviceAnswer) -> Chart | None:
    """The operators that take most of the time on a device."""
    title = f"Which operators take the time on {label(each.device)}"
    return attribution_chart(each.answer.attribution if each.answer else None, title)


def as_curl(form: run_form.RunForm) -> Callable[[str], str]:
    """Address of the service -> a line of a shell that asks it the same over HTTP."""
    asked = (form.asked(name) for name in form.devices)
    full = (each.model_dump(exclude_unset=True, exclude_none=True) for each in asked)
    items = [{name: part for name, part in each.items() if part} for each in full]
    if len(items) == 1:
        return partial(run_form.curl, PREDICT, items[0])
    return partial(run_form.curl, f"{PREDICT}:batch", {"items": items})


def as_python(form: run_form.RunForm) -> str:
    """Lines of Python that ask the same about a file."""
    given: Mapping[str, Any] = {
        "device": form.devices[0] if len(form.devices) == 1 else form.devices,
        **form.model_dump(exclude_unset=True, exclude={"graph", "title", "devices"}),
        "batch_size": form.batch_size,
        "precision": form.precision,
    }
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    return f'import forerun\n\nforerun.predict(\n    "model.onnx",\n{arguments})'


router = form_page("/", "predict", run_form.RunForm, _answer, run_form.form_context)


@router.get(CURVES)
def curves_page(
    request: Request, form: Annotated[run_form.RunForm, Query()], answers: TheAnswers
) -> HTMLResponse:
    """The curves over batch sizes, which the start page asks for after its answer."""
    points = run_form.batch_points(form, answers, run_form.doublings(form.batch_size))
    charts = (curve_chart(points, form.batch_size, rate) for rate in (False, True))
    template = "curves.html" if asks_for_part(request) else "curves_page.html"
    return rendered(template, CURVES, form=form, curves=[c for c in charts if c])
