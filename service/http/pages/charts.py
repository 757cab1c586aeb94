"""Charts of answers: intervals, parts of time and memory, operators, and rooflines."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from forerun.data.errors import InputError
from forerun.data.metrics import TITLES, metric
from forerun.data.query import Query
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import COMPUTE_PRECISION, traffic_bytes
from forerun.service.http.pages.chart import (
    BAR_STEP_PX,
    HUES,
    Cell,
    Chart,
    bars_of,
    category,
    coloured,
    doubling,
    interval_cells,
    interval_curve,
    joined_points,
    label,
    layer,
    logarithmic,
    marked,
    number,
    percent,
    quantity,
    short,
    shown,
)
from forerun.service.http.pages.run_form import BatchPoint, DeviceAnswer
from forerun.service.schemas.answers import REST, AttributionOut, PredictionOut

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
    own = metric("samples_per_s" if rate else "latency_ms")
    title, unit = TITLES[own.name], own.unit
    ends = [row[end] for row in rows for end in ("low", "value", "high")]
    values = [end for end in ends if isinstance(end, float)]
    memory = category("memory", scale={"domain": [*SHAPES], "range": [*SHAPES.values()]})
    memory["legend"] = {"orient": "bottom"}
    if {row["memory"] for row in rows} == {"fits"}:
        memory["legend"] = None
    y = logarithmic("value", unit, values)
    tooltip = {"device": "device", "batch": "batch size", "text": "estimate", "memory": "memory"}
    spec = interval_curve(doubling("batch", "batch size"), y, category("device"), memory, **tooltip)
    spec["layer"].append(marked("batch", [chosen]))
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
    drawn = estimate.over(1e3 * point.batch_size, "samples/s") if rate else estimate
    return {
        "device": label(point.device),
        "batch": point.batch_size,
        **interval_cells(drawn, drawn.unit),
        "memory": fit_in_words(point.answer),
    }


OTHER = "other"
"""Stands for all parts without a colour of their own."""


def parts_chart(
    title: str, unit: str, breakdowns: Mapping[str, Mapping[str, float]]
) -> Chart | None:
    """What a total consists of, as one stacked bar a name; None where nothing is known.

    Args:
        title: heading.
        unit: unit of the amounts.
        breakdowns: name of a bar -> part -> amount.
    """
    rows: list[Mapping[str, Cell]] = []
    for name, parts in breakdowns.items():
        amounts: Counter[str] = Counter()
        for part, amount in parts.items():
            amounts[part if part in HUES else OTHER] += amount  # type: ignore[assignment]
        total = sum(amounts.values())
        rows += [
            {"name": name, "part": part, "amount": amounts[part], "rank": rank,
             "text": f"{quantity(amounts[part], unit)}, {percent(amounts[part] / total)}"}
            for rank, part in enumerate((*HUES, OTHER))
            if amounts[part] > 0
        ]  # fmt: skip
    if not rows:
        return None
    by_rank = sorted(rows, key=lambda row: cast(int, row["rank"]))
    spec = {
        "height": BAR_STEP_PX * len({row["name"] for row in rows}),
        "mark": {"type": "bar", "height": 20},
        "encoding": {
            "y": bars_of("name"),
            "x": number("amount", unit),
            "color": coloured("part", (row["part"] for row in by_rank)),
            "order": {"field": "rank"},
            "tooltip": shown(name="of", part="part", text="amount"),
        },
    }
    largest = max(rows, key=lambda row: cast(float, row["amount"]))["part"]
    summary = f"{title}, as stacked bars; the largest part is {largest}."
    return Chart(title, summary, spec, rows, {"name": "", "part": "part", "amount": unit})


def trade_off(
    title: str,
    rows: Sequence[Mapping[str, Cell]],
    axes: tuple[str, str],
    columns: Mapping[str, str],
) -> Chart | None:
    """Two costs of options that no other beats in both, joined by a line; None for fewer than two.

    Args:
        title: heading.
        rows: the options, in the order of the line.
        axes: fields of both costs.
        columns: field -> title; the first names the options.
    """
    if len(rows) < 2:
        return None
    x, y = (
        logarithmic(field, columns[field], [float(str(row[field])) for row in rows])
        for field in axes
    )
    spec = joined_points(x, y, next(iter(columns)), {}, tooltip=shown(**columns))
    return Chart(title, f"{title}: what no other beats in both.", spec, rows, columns)


CACHED: Final = "above the memory roof"
PLACES: Final = ("under the roof", CACHED)
"""Places of a class of operators; the traffic of the roof counts every tensor once."""


def roofline_chart(each: DeviceAnswer) -> Chart | None:
    """Arithmetic intensity and attained rate of every operator class, under the device's roof.

    None where the sheet has no peak, or where no class does arithmetic in a known time.

    Args:
        each: the answer.
    """
    if each.answer is None or not each.device.has_sheet:
        return None
    device, precision = each.device, COMPUTE_PRECISION[each.query.run.precision]
    try:
        peak = device.peak(precision, matrix=True)
    except InputError:
        return None
    gbs = device.bandwidth_gbs
    rows = _roofline_rows(each.query, each.answer.breakdown_ms, peak, gbs)
    if not rows:
        return None
    ridge = 1e3 * peak / gbs
    at = [float(str(row["intensity"])) for row in rows]
    corners = (min(0.1, *at) / 2, ridge, 2 * max(2 * ridge, *at))
    roof_line = [{"intensity": x, "tflops": min(peak, x * gbs / 1e3)} for x in corners]
    heights = [float(str(row["tflops"])) for row in rows] + [r["tflops"] for r in roof_line]
    colour = coloured("part", (row["part"] for row in rows))
    place = category("place", scale={"domain": [*PLACES], "range": ["circle", "triangle-up"]})
    place["legend"] = {"orient": "bottom"} if any(r["place"] == CACHED for r in rows) else None
    area = {"type": "quantitative", "legend": None, "scale": {"range": [50, 900]}}
    spec = {
        "height": 300,
        "encoding": {
            "x": logarithmic("intensity", "FLOP per byte", corners),
            "y": logarithmic("tflops", "TFLOP/s", heights),
        },
        "layer": [
            {"data": {"values": roof_line}, **layer({"type": "line", "color": "var(--quiet)"})},
            layer({"type": "point", "opacity": 0.85}, color=colour, shape=place,
                  size={"field": "ms", **area}, tooltip=shown(part="operators", text="attained")),
        ],
    }  # fmt: skip
    summary = (
        f"Operator classes under the roof of {short(peak)} TFLOP/s in {precision} and "
        f"{short(gbs)} GB/s; the area of a point is its time."
    )
    columns = {
        "part": "operators", "intensity": "FLOP per byte", "tflops": "TFLOP/s",
        "roof": "roof, TFLOP/s", "ms": "ms", "place": "",
    }  # fmt: skip
    return Chart(f"Roofline of {label(device)}", summary, spec, rows, columns)


def _roofline_rows(
    query: Query, breakdown_ms: Mapping[str, float], peak: float, gbs: float
) -> list[Mapping[str, Cell]]:
    """Rows of the chart under a roof of `peak` TFLOP/s and `gbs` GB/s, longest time first.

    There is one for each operator class with arithmetic.
    """
    table = query_table(query.run)
    count = len(OPERATOR_CLASSES)
    flops = np.bincount(table.op_class, table.flops * table.repeat, count)
    traffic = traffic_bytes(table, query.run.precision) * table.repeat
    moved = np.bincount(table.op_class, traffic, count)
    rows: list[Mapping[str, Cell]] = []
    for code, name in enumerate(OPERATOR_CLASSES):
        ms = breakdown_ms.get(name, 0.0)
        if flops[code] > 0.0 and moved[code] > 0.0 and ms > 0.0:
            rate, intensity = float(flops[code]) / ms / 1e9, float(flops[code] / moved[code])
            roof = min(peak, intensity * gbs / 1e3)
            rows.append({
                "part": name, "intensity": intensity, "tflops": rate, "roof": roof, "ms": ms,
                "place": PLACES[rate > roof],
                "text": f"{short(rate)} of {short(roof)} TFLOP/s, {short(ms)} ms",
            })  # fmt: skip
    return sorted(rows, key=lambda row: -cast(float, row["ms"]))


MOST_BARS: Final = 12
SMALLER: Final = "all smaller parts"
LABEL_PX: Final = 300
"""Width of a label above its bar, which fits the narrowest window."""


def attribution_chart(own: AttributionOut | None, title: str) -> Chart | None:
    """The largest parts of an estimate as bars, with their labels above; None without parts.

    Args:
        own: the estimate divided into parts; None where it is not.
        title: heading.
    """
    if own is None or not own.parts:
        return None
    return _sum(own, title) if own.form == "sum" else _product(own, title)


def _sum(own: AttributionOut, title: str) -> Chart:
    unit = metric(own.metric).unit
    title += f" ({said})" if (said := own.batch_of_shapes()) else ""
    total = sum(part.value for part in own.parts)
    by_label: defaultdict[str, float] = defaultdict(float)
    for part in own.parts:
        by_label[SMALLER if part.group == REST else part.label] += part.value
    names = sorted(by_label.keys() - {SMALLER}, key=lambda name: -by_label[name])
    kept = dict.fromkeys(names[:MOST_BARS])
    amounts: defaultdict[tuple[str, str], float] = defaultdict(float)
    for part in own.parts:
        colour = part.group if part.group in HUES else OTHER
        amounts[(part.label, colour) if part.label in kept else (SMALLER, OTHER)] += part.value

    def place(item: tuple[tuple[str, str], float]) -> int:
        return names.index(item[0][0]) if item[0][0] in kept else len(names)

    rows: list[Mapping[str, Cell]] = [
        {"name": name, "part": part, "amount": amount,
         "text": f"{quantity(amount, unit)}, {percent(amount / total)}"}
        for (name, part), amount in sorted(amounts.items(), key=place)
    ]  # fmt: skip
    largest = f"{names[0]} with {quantity(by_label[names[0]], unit)}"
    summary = f"{title}, as bars; the largest part is {largest}."
    colours = coloured("part", (row["part"] for row in rows))
    spec = _bars(rows, number("amount", unit), {"color": colours})
    columns = {"name": "", "part": "class", "amount": unit}
    return Chart(title, summary, spec, rows, columns)


def _product(own: AttributionOut, title: str) -> Chart:
    rows: list[Mapping[str, Cell]] = [
        {"name": f"{part.label} (x {short(part.value)})", "one": 1.0, "amount": part.value,
         "text": f"times {short(part.value)}"}
        for part in own.parts
    ]  # fmt: skip
    unit = f"factor on {metric(own.metric).unit}"
    ends = [1.0, *(part.value for part in own.parts)]
    without = f"{metric(own.metric).text(own.base)} without directives"
    summary = f"{title}, as factors from {without}; the largest is {own.parts[0].label}."
    x = logarithmic("amount", f"{unit}, from {without}", ends)
    return Chart(title, summary, _bars(rows, x, {"x2": {"field": "one"}}), rows,
                 {"name": "", "amount": unit})  # fmt: skip


def _bars(
    rows: Sequence[Mapping[str, Cell]],
    x: dict[str, object],
    more: Mapping[str, dict[str, object]],
) -> Mapping[str, object]:
    """Bars in the order of the rows, each with its name above."""
    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    band = category("name", axis=None)
    text = {"type": "text", "align": "left", "dy": -8, "limit": LABEL_PX}
    return {
        "height": BAR_STEP_PX * len(names),
        "encoding": {"y": band},
        "layer": [
            layer({"type": "bar", "height": 10, "yOffset": 6}, x=x,
                  tooltip=shown(name="part", text="amount"), **more),
            {"data": {"values": [{"name": name} for name in names]},
             **layer(text, x={"value": 0},
                     text={"field": "name", "type": "nominal"})},
        ],
    }  # fmt: skip
