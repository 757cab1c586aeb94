"""Charts of an attribution: the largest operators of a network, or the loops of a design."""

from collections import Counter
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
from forerun.service.schemas.attribution import AttributionOut

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
    total = sum(part.value for part in own.parts)
    by_label: Counter[str] = Counter()
    for part in own.parts:
        by_label[part.label] += part.value  # type: ignore[assignment]
    largest = [name for name, _ in by_label.most_common(MOST_BARS) if name != own.parts[-1].label]
    amounts: dict[tuple[str, str], float] = {}
    for name in largest:
        for part in own.parts:
            if part.label == name:
                key = name, part.group if part.group in order else OTHER
                amounts[key] = amounts.get(key, 0.0) + part.value
    rest = total - sum(amounts.values())
    if len(by_label) > len(largest):
        amounts[SMALLER, OTHER] = max(rest, 0.0)
    rows: list[Mapping[str, Cell]] = [
        {"name": name, "part": part, "amount": amount,
         "text": f"{short(amount)} {unit}, {percent(amount / total)}"}
        for (name, part), amount in amounts.items()
    ]  # fmt: skip
    first = rows[0]
    summary = f"{title}, as bars; the largest part is {first['name']} with {first['text']}."
    colour = coloured("part", (*order, OTHER), {row["part"] for row in rows})
    spec = _bars(rows, number("amount", unit), {"color": colour})
    columns = {"name": "", "part": "class", "amount": unit}
    return Chart(title, summary, spec, rows, columns)


def _product(own: AttributionOut, title: str) -> Chart:
    rows: list[Mapping[str, Cell]] = [
        {"name": part.label, "one": 1.0, "amount": part.value, "text": f"times {short(part.value)}"}
        for part in own.parts
    ]
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
