"""Charts of what an answer consists of: stacked parts of time and memory, and rooflines."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import COMPUTE_PRECISION, traffic_bytes
from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.encodings import (
    BAR_STEP_PX,
    bars_of,
    coloured,
    layer,
    logarithmic,
    number,
    shown,
)
from forerun.service.http.pages.numbers import label, percent, short
from forerun.service.http.pages.predict_answer import DeviceAnswer

MOST_PARTS = 7
OTHER = "other"
"""Stands for all parts after the `MOST_PARTS` largest."""


def largest_parts(breakdowns: Sequence[Mapping[str, float]]) -> list[str]:
    """The names that get a colour of their own, the largest share over all breakdowns first."""
    shares: Counter[str] = Counter()
    for parts in breakdowns:
        total = sum(parts.values())
        shares.update({name: amount / total for name, amount in parts.items() if amount > 0.0})
    return [name for name, _ in shares.most_common(MOST_PARTS)]


def parts_chart(
    title: str, unit: str, breakdowns: Mapping[str, Mapping[str, float]]
) -> Chart | None:
    """What a total consists of, as one stacked bar a name; None where nothing is known.

    Args:
        title: heading.
        unit: unit of the amounts.
        breakdowns: name of a bar -> part -> amount.
    """
    order = largest_parts(list(breakdowns.values()))
    rows: list[Mapping[str, Cell]] = []
    for name, parts in breakdowns.items():
        amounts: Counter[str] = Counter()
        for part, amount in parts.items():
            amounts[part if part in order else OTHER] += amount  # type: ignore[assignment]
        total = sum(amounts.values())
        rows += [
            {"name": name, "part": part, "amount": amounts[part], "rank": rank,
             "text": f"{short(amounts[part])} {unit}, {percent(amounts[part] / total)}"}
            for rank, part in enumerate((*order, OTHER))
            if amounts[part] > 0
        ]  # fmt: skip
    if not rows:
        return None
    spec = {
        "height": BAR_STEP_PX * len({row["name"] for row in rows}),
        "mark": {"type": "bar", "height": 20},
        "encoding": {
            "y": bars_of("name"),
            "x": number("amount", unit),
            "color": coloured("part", (*order, OTHER), {row["part"] for row in rows}),
            "order": {"field": "rank"},
            "tooltip": shown(name="device", part="part", text="amount"),
        },
    }
    summary = f"{title}, as stacked bars; the largest part is {order[0]}."
    return Chart(title, summary, spec, rows, {"name": "", "part": "part", "amount": unit})


def roofline_chart(each: DeviceAnswer, order: Sequence[str]) -> Chart | None:
    """Arithmetic intensity and attained rate of every operator class, under the device's roof.

    None where the sheet has no peak, or where no class does arithmetic in a known time.

    Args:
        each: the answer.
        order: names of classes in the order of their colours.
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
    colour = coloured("part", (*order, OTHER), {row["part"] for row in rows})
    area = {"type": "quantitative", "legend": None, "scale": {"range": [50, 900]}}
    spec = {
        "height": 300,
        "encoding": {
            "x": logarithmic("intensity", "FLOP per byte", corners),
            "y": logarithmic("tflops", "TFLOP/s", heights),
        },
        "layer": [
            {"data": {"values": roof_line}, **layer({"type": "line", "color": "var(--quiet)"})},
            layer({"type": "point", "opacity": 0.85}, color=colour,
                  size={"field": "ms", **area}, tooltip=shown(part="operators", text="attained")),
        ],
    }  # fmt: skip
    summary = (
        f"Operator classes under the roof of {short(peak)} TFLOP/s in {precision} and "
        f"{short(gbs)} GB/s; the area of a point is its time."
    )
    columns = {
        "part": "operators", "intensity": "FLOP per byte", "tflops": "TFLOP/s",
        "roof": "roof, TFLOP/s", "ms": "ms",
    }  # fmt: skip
    return Chart(f"Roofline of {label(device)}", summary, spec, rows, columns)


def _roofline_rows(
    query: Query, breakdown_ms: Mapping[str, float], peak: float, gbs: float
) -> list[Mapping[str, Cell]]:
    """Rows of the chart under a roof of `peak` TFLOP/s and `gbs` GB/s."""
    rows: list[Mapping[str, Cell]] = []
    for name, intensity, rate, ms in _classes(query, breakdown_ms):
        roof = min(peak, intensity * gbs / 1e3)
        rows.append({
            "part": name, "intensity": intensity, "tflops": rate, "roof": roof, "ms": ms,
            "text": f"{short(rate)} of {short(roof)} TFLOP/s, {short(ms)} ms",
        })  # fmt: skip
    return rows


def _classes(
    query: Query, breakdown_ms: Mapping[str, float]
) -> list[tuple[str, float, float, float]]:
    """Operator class, FLOP per byte, 1e12 FLOP/s, milliseconds; classes with arithmetic only."""
    table = query_table(query.run)
    count = len(OPERATOR_CLASSES)
    flops = np.bincount(table.op_class, table.flops * table.repeat, count)
    traffic = traffic_bytes(table, query.run.precision) * table.repeat
    moved = np.bincount(table.op_class, traffic, count)
    found = []
    for code, name in enumerate(OPERATOR_CLASSES):
        ms = breakdown_ms.get(name, 0.0)
        if flops[code] > 0.0 and moved[code] > 0.0 and ms > 0.0:
            rate = float(flops[code]) / ms / 1e9
            found.append((name, float(flops[code] / moved[code]), rate, ms))
    return sorted(found, key=lambda each: -each[3])
