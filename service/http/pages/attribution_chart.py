"""Charts of an attribution: the largest operators of a network, or the loops of a design."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from forerun.data.metrics import metric
from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.encodings import (
    BAR_STEP_PX,
    category,
    coloured,
    layer,
    logarithmic,
    number,
    shown,
)
from forerun.service.http.pages.numbers import percent, short
from forerun.service.http.pages.parts_charts import OTHER
from forerun.service.schemas.answers import REST, AttributionOut

MOST_BARS: Final = 12
SMALLER: Final = "all smaller parts"
LABEL_PX: Final = 300
"""Width of a label above its bar, which fits the narrowest window."""


def attribution_chart(own: AttributionOut, title: str, order: Sequence[str] = ()) -> Chart | None:
    """The largest parts of an estimate as bars, with their labels above; None without parts.

    Args:
        own: the estimate divided into parts.
        title: heading.
        order: names of operator classes in the order of their colours.
    """
    if not own.parts:
        return None
    return _sum(own, title, order) if own.form == "sum" else _product(own, title)


def _sum(own: AttributionOut, title: str, order: Sequence[str]) -> Chart:
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
        colour = part.group if part.group in order else OTHER
        amounts[(part.label, colour) if part.label in kept else (SMALLER, OTHER)] += part.value

    def place(item: tuple[tuple[str, str], float]) -> int:
        return names.index(item[0][0]) if item[0][0] in kept else len(names)

    rows: list[Mapping[str, Cell]] = [
        {"name": name, "part": part, "amount": amount,
         "text": f"{short(amount)} {unit}, {percent(amount / total)}"}
        for (name, part), amount in sorted(amounts.items(), key=place)
    ]  # fmt: skip
    largest = f"{names[0]} with {short(by_label[names[0]])} {unit}"
    summary = f"{title}, as bars; the largest part is {largest}."
    colours = coloured("part", (*order, OTHER), {row["part"] for row in rows})
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
