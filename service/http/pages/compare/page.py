"""The page *Compare*: one network on many devices."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import HTMLResponse

from forerun.data.device import Device
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Chart
from forerun.service.http.pages.compare.form import (
    COMPARED,
    MEASURES,
    OBJECTIVES,
    CompareForm,
)
from forerun.service.http.pages.compare.heat_map import heat_map
from forerun.service.http.pages.encodings import category, layer, number, shown
from forerun.service.http.pages.numbers import label, short
from forerun.service.http.pages.predict_answer import BatchPoint, batch_points
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_page import form_context, network_presets
from forerun.service.http.routes.rank import rank_of
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.interval import IntervalOut

PATH = "/compare"
SIZES = (1, 4, 16, 64, 256, 1024)
"""Batch sizes of the heat map, besides that of the form."""

router = page_router()


@router.get(PATH)
async def compare_page(
    request: Request, form: Annotated[CompareForm, Query()], answers: TheAnswers, state: TheState
) -> HTMLResponse:
    """A heat map of devices and batch sizes, a ranking, and the devices that none beats."""

    def page() -> HTMLResponse:
        context = _answer(form, answers)
        if asks_for_part(request):
            return rendered("compare_answer.html", PATH, **context)
        more: dict[str, Any] = {"measures": MEASURES, "objectives": OBJECTIVES}
        return rendered("compare.html", PATH, **context, **more, **form_context(form, answers))

    return await state.run(page)


def _answer(form: CompareForm, answers: Answers) -> dict[str, Any]:
    """The context of `compare_answer.html`."""
    if form.graph is None or not form.devices:
        return {"form": form, "heat": None, "presets": network_presets(PATH, COMPARED)}
    sizes = sorted({*SIZES, form.batch_size})
    points = batch_points(form, answers, sizes)
    chosen = [point for point in points if point.batch_size == form.batch_size]
    prices = {answers.device(name): price for name, price in form.prices_per_hour().items()}
    ranking = rank_of(form.ranking(), answers)
    fronts = (front_chart(chosen, None), front_chart(chosen, prices) if prices else None)
    return {
        "form": form,
        "measure": MEASURES[form.measure],
        "objective": OBJECTIVES[form.objective],
        "heat": heat_map(points, sizes, form.measure),
        "ranking": ranking,
        "objectives_of": {each.device.name: _readable(each.objective) for each in ranking.ranked},
        "titles": {point.device.name: label(point.device) for point in points},
        "fronts": [chart for chart in fronts if chart],
    }


def _readable(objective: IntervalOut) -> IntervalOut:
    """The objective; a price is that of a million runs, since one run costs next to nothing."""
    if objective.unit != "price of a run":
        return objective
    ends = {name: getattr(objective, name) for name in ("value", "low", "high")}
    scaled = {name: None if end is None else 1e6 * end for name, end in ends.items()}
    return objective.model_copy(update={**scaled, "unit": "a million runs"})


def front_chart(points: Sequence[BatchPoint], prices: dict[Device, float] | None) -> Chart | None:
    """Time against energy or cost of a run, with the devices that no other beats in both.

    Args:
        points: answers for devices at one batch size.
        prices: device -> price of an hour; energy is drawn when None.

    Returns:
        The chart; None where fewer than two devices have both.
    """
    found = []
    for point in points:
        time, energy = (point.answer.metrics.get(name) for name in ("latency_ms", "energy_j"))
        if time is None or (prices is None and energy is None):
            continue
        if prices is None and energy is not None:
            found.append((point.device, time.value, energy.value / point.batch_size))
        elif prices and point.device in prices:
            price = 1e6 * prices[point.device] * time.value / 3.6e6 / point.batch_size
            found.append((point.device, time.value, price))
    if len(found) < 2:
        return None
    axis = "energy of a sample, J" if prices is None else "price of a million samples"
    rows = [
        {"device": label(device), "ms": ms, "other": other,
         "text": f"{short(ms)} ms, {short(other)}",
         "front": "best trade-off" if _is_on_front(ms, other, found) else "beaten"}
        for device, ms, other in found
    ]  # fmt: skip
    x, y = number("ms", "time of one run, ms"), number("other", axis)
    mark = {"type": "text", "align": "left", "dx": 9, "fontSize": 12, "color": "var(--ink)"}
    spec = {
        "height": 300,
        "encoding": {"x": x, "y": y, "tooltip": shown(device="device", text="time and other")},
        "layer": [
            layer({"type": "point", "size": 90, "opacity": 1}, color=category("front")),
            layer(mark, text={"field": "device"}),
        ],
    }
    best = [str(row["device"]) for row in rows if row["front"] == "best trade-off"]
    summary = f"Time against {axis}; no other device is better in both than {', '.join(best)}."
    columns = {"device": "device", "ms": "time, ms", "other": axis, "front": ""}
    return Chart(f"Time and {axis.partition(',')[0]}", summary, spec, rows, columns)


def _is_on_front(ms: float, other: float, found: Sequence[tuple[Device, float, float]]) -> bool:
    """Whether no device is at least as good in both, and better in one."""
    return not any((a <= ms and b <= other) and (a < ms or b < other) for _, a, b in found)
