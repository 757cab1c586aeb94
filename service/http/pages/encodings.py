"""Encodings of Vega-Lite that several charts use."""

from collections.abc import Container, Iterable, Mapping
from math import ceil, floor, log10
from typing import Any

Encoding = dict[str, Any]

LARGEST_PLAIN = 1e4
"""Ticks beyond have a prefix, as 20k."""

FEWEST_TICKS = 3

BAR_STEP_PX = 38
"""Height of the band of one bar, pixels."""


def number(field: str, title: str | None = None, **more: Any) -> Encoding:
    """A quantity on a linear scale from zero."""
    return {"field": field, "type": "quantitative", "title": title, "axis": {"tickCount": 5}} | more


def logarithmic(field: str, title: str | None, values: Iterable[float | None]) -> Encoding:
    """A quantity on a logarithmic scale, with ticks that suit the values."""
    ticks = log_ticks(values)
    axis = {"values": ticks, "format": "~s" if ticks and ticks[-1] > LARGEST_PLAIN else "~g"}
    return number(field, title, scale={"type": "log", "nice": False}, axis=axis)


def doubling(field: str, title: str) -> Encoding:
    """A count on a logarithmic scale of base two, as batch sizes."""
    scale = {"type": "log", "base": 2, "nice": False}
    return number(field, title, scale=scale, axis={"grid": False, "labelOverlap": True})


def category(field: str, **more: Any) -> Encoding:
    """Names in colours or shapes, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": None, "sort": None} | more


def coloured(field: str, order: Iterable[str], used: Container[object]) -> Encoding:
    """Names in colours that the order decides; the legend lists those that are used."""
    names = list(order)
    listed = [name for name in names if name in used]
    return category(field, scale={"domain": names}, legend={"values": listed})


def bars_of(field: str) -> Encoding:
    """Names down the side of a bar chart, in the order of the rows."""
    return category(field, axis={"ticks": False, "domain": False, "labelLimit": 130})


def shown(**titles: str) -> list[Encoding]:
    """Fields of a tooltip: field -> title; numbers have three digits."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def layer(mark: str | Mapping[str, Any], **encoding: Encoding | list[Encoding]) -> Encoding:
    """One layer of a chart."""
    return {"mark": mark, "encoding": encoding}


def log_ticks(values: Iterable[float | None]) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, with steps between them where these are few."""
    known = [value for value in values if value]
    if not known:
        return []
    low, high = min(known), max(known)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks: list[float] = []
    for steps in ("1", "1 2 5", "1 1.5 2 3 4 5 7"):
        every = [float(f"{step}e{power}") for power in powers for step in steps.split()]
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) >= FEWEST_TICKS:
            break
    return ticks
