"""Charts of estimates with their intervals: as bars by name, and as curves over batch sizes."""

from collections.abc import Mapping, Sequence

from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.encodings import (
    BAR_STEP_PX,
    bars_of,
    category,
    doubling,
    layer,
    logarithmic,
    number,
    shown,
)
from forerun.service.http.pages.numbers import label, short
from forerun.service.http.pages.predict_answer import BatchPoint
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.interval import IntervalOut

SHAPES = {
    "fits": "circle",
    "may not fit": "triangle-up",
    "does not fit": "cross",
    "not known": "square",
}
"""Whether the memory is enough -> shape of a point."""


def fit_in_words(answer: PredictionOut) -> str:
    """Whether the memory is enough: by the upper end, by the best estimate alone, or not."""
    fits = answer.fits
    if fits is None:
        return "not known"
    if fits.fits:
        return "fits"
    return "may not fit" if fits.fits_at_value else "does not fit"


def bars_chart(title: str, estimates: Mapping[str, IntervalOut]) -> Chart | None:
    """Estimates by name, as bars with intervals; None where there are fewer than two.

    Args:
        title: heading.
        estimates: name -> estimate; all have one unit.
    """
    if len(estimates) < 2:
        return None
    rows: list[Mapping[str, Cell]] = [
        {"name": name, "value": each.value, "low": each.low, "high": each.high,
         "text": f"{short(each.value)} {each.unit}"}
        for name, each in estimates.items()
    ]  # fmt: skip
    unit = next(iter(estimates.values())).unit
    dark = "var(--ink)"
    spec = {
        "height": BAR_STEP_PX * len(rows),
        "encoding": {"y": bars_of("name"), "tooltip": shown(name="name", text="estimate")},
        "layer": [
            layer({"type": "bar", "height": 16, "opacity": 0.75}, x=number("value", unit)),
            layer({"type": "rule", "strokeWidth": 2, "color": dark},
                  x=number("low", unit), x2={"field": "high"}),
            *(layer({"type": "tick", "thickness": 2, "size": 10, "color": dark},
                    x=number(end, unit)) for end in ("low", "high")),
        ],
    }  # fmt: skip
    least = min(estimates, key=lambda name: estimates[name].value)
    summary = (
        f"{title} of {len(rows)}, with intervals; the least is {least} with "
        f"{short(estimates[least].value)} {unit}."
    )
    columns = {"name": "", "value": f"estimate, {unit}", "low": "low", "high": "high"}
    return Chart(title, summary, spec, rows, columns)


def curve_chart(points: Sequence[BatchPoint], chosen: int, rate: bool) -> Chart | None:
    """Time of a run, or samples per second, over the batch size; None where no time is known.

    Args:
        points: answers over devices and batch sizes.
        chosen: batch size that is marked.
        rate: whether samples per second are drawn, in place of the time.
    """
    rows = [row for point in points if (row := _curve_row(point, rate))]
    if not rows:
        return None
    title, unit = ("Samples per second", "samples/s") if rate else ("Time of one run", "ms")
    ends = [row[end] for row in rows for end in ("low", "value", "high")]
    values = [end for end in ends if isinstance(end, float)]
    memory = category("memory", scale={"domain": [*SHAPES], "range": [*SHAPES.values()]})
    memory["legend"] = {"orient": "bottom"}
    if {row["memory"] for row in rows} == {"fits"}:
        memory["legend"] = None
    tooltip = shown(device="device", batch="batch size", text=unit, memory="memory")
    spec = {
        "height": 280,
        "encoding": {"x": doubling("batch", "batch size"), "color": category("device")},
        "layer": [
            layer({"type": "area", "opacity": 0.13},
                  y=logarithmic("low", unit, values), y2={"field": "high"}),
            layer("line", y=logarithmic("value", unit, values)),
            layer({"type": "point", "size": 46, "opacity": 1},
                  y=logarithmic("value", unit, values), shape=memory, tooltip=tooltip),
            {"data": {"values": [{"batch": chosen}]},
             **layer({"type": "rule", "strokeDash": [4, 4]}, color={"value": "var(--quiet)"})},
        ],
    }  # fmt: skip
    columns = {
        "device": "device", "batch": "batch size", "value": unit, "low": "low", "high": "high",
        "memory": "memory",
    }  # fmt: skip
    summary = f"{title} over batch sizes on each device, with intervals; {chosen} is marked."
    return Chart(f"{title} over batch size", summary, spec, rows, columns)


def _curve_row(point: BatchPoint, rate: bool) -> Mapping[str, Cell] | None:
    estimate = point.answer.metrics.get("latency_ms")
    if estimate is None:
        return None
    value, low, high = estimate.value, estimate.low, estimate.high
    if rate:
        samples = 1e3 * point.batch_size
        value = samples / value
        low, high = (None if not end else samples / end for end in (high, low))
    return {
        "device": label(point.device), "batch": point.batch_size, "value": value, "low": low,
        "high": high, "text": short(value), "memory": fit_in_words(point.answer),
    }  # fmt: skip
