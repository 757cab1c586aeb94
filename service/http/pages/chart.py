"""A chart of a page: a Vega-Lite specification, a table of the same figures, and numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor, log10
from typing import Any

from forerun.data.device import Device
from forerun.data.metrics import TITLES
from forerun.service.schemas.answers import IntervalOut
from forerun.service.schemas.colocation import PerformanceOut

MISSING = "–"
"""Stands for a value that is not known."""


def short(value: float | None, digits: int = 3) -> str:
    """A number to that many significant digits; whole numbers of more digits are kept whole."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    places = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:,.{places}f}"


def percent(share: float | None, digits: int = 0) -> str:
    """A share as percent."""
    return MISSING if share is None else f"{100 * share:.{digits}f} %"


def large(value: float | None, billion: str = "G") -> str:
    """A large number with a prefix: 25.6 million is 25.6 M.

    Args:
        value: the number; None where it is not known.
        billion: prefix of billions; `B` for counts of parameters.
    """
    if value is None:
        return MISSING
    for size, prefix in ((1e12, "T"), (1e9, billion), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{short(value / size)} {prefix}"
    return short(value)


def label(device: Device) -> str:
    """The title of a device without its vendor and brand, for tables and charts."""
    words = device.title.split()
    brands = {device.vendor.lower(), "geforce", "radeon", "instinct", "tesla"}
    kept = [word for word in words if word.lower() not in brands]
    return " ".join(kept or words)


LARGER: Mapping[str, Mapping[str, float]] = {
    "ms": {"s": 1e3, "min": 6e4, "h": 3.6e6},
    "MiB": {"GiB": 1024.0, "TiB": 1024.0**2},
    "W": {"kW": 1e3},
    "J": {"kJ": 1e3, "MJ": 1e6},
    "USD": {"M USD": 1e6},
}
"""Unit -> larger units of the same quantity, each as a number of the unit."""


def scaled(estimate: IntervalOut) -> IntervalOut:
    """An estimate in the largest of its units in which it is at least 1."""
    found = [each for each in LARGER.get(estimate.unit, {}).items() if estimate.value >= each[1]]
    unit, size = found[-1] if found else (estimate.unit, 1.0)
    return estimate.times(1.0 / size, unit)


def quantity(value: float, unit: str) -> str:
    """A number with its unit: 1500 ms is 1.50 s."""
    own = scaled(IntervalOut(value=value, low=None, high=None, coverage=None, unit=unit))
    return f"{short(own.value)} {own.unit}".rstrip()


def plain(value: float) -> str:
    """A number for an input field: every digit, without an exponent or separators."""
    return f"{Decimal(repr(value)).normalize():f}"


FILTERS: Mapping[str, Callable[..., Any]] = {
    "short": short,
    "percent": percent,
    "large": large,
    "label": label,
    "scaled": scaled,
    "quantity": quantity,
    "plain": plain,
    "heading": lambda name: TITLES.get(name, name),
}
"""Filters of the templates."""


Spec = Mapping[str, Any]
"""A Vega-Lite specification without its data; colours are custom properties of the style sheet."""

Cell = str | float | None
HEIGHT_PX = 260


@dataclass(frozen=True)
class Chart:
    """What the macro `chart` of `chart.html` draws.

    Attributes:
        title: heading of the figure.
        summary: what the chart shows, in one or two sentences, for those who cannot see it.
        spec: the Vega-Lite specification.
        rows: its data, one mapping a row.
        columns: name of a field -> heading in the table; fields without a heading are left out.
    """

    title: str
    summary: str
    spec: Spec
    rows: Sequence[Mapping[str, Cell]]
    columns: Mapping[str, str]

    def specification(self) -> dict[str, Any]:
        """The specification with its data, to be written into the page as JSON."""
        return {
            "width": "container",
            "height": HEIGHT_PX,
            "autosize": {"type": "fit-x", "contains": "padding"},
            **self.spec,
            "data": {"values": [dict(row) for row in self.rows]},
        }


Encoding = dict[str, Any]

FEWEST_TICKS = 3

BAR_STEP_PX = 38
"""Height of the band of one bar, pixels."""


def number(field: str, title: str | None = None, **more: Any) -> Encoding:
    """A quantity on a linear scale from zero."""
    return {"field": field, "type": "quantitative", "title": title, "axis": {"tickCount": 5}} | more


def logarithmic(field: str, title: str | None, values: Iterable[float | None]) -> Encoding:
    """A quantity on a logarithmic scale, with ticks that suit the values."""
    axis = {"values": log_ticks(values), "format": ",~r"}
    return number(field, title, scale={"type": "log", "nice": False}, axis=axis)


def doubling(field: str, title: str) -> Encoding:
    """A count on a logarithmic scale of base two, as batch sizes."""
    scale = {"type": "log", "base": 2, "nice": False}
    return number(field, title, scale=scale, axis={"grid": False, "labelOverlap": True})


def category(field: str, **more: Any) -> Encoding:
    """Names in colours or shapes, in the order of the rows."""
    return {"field": field, "type": "nominal", "title": None, "sort": None} | more


HUES: Mapping[str, int] = {
    "conv": 215, "linear": 275, "bmm": 305, "attention": 335, "elementwise": 165, "softmax": 190,
    "norm": 45, "reduce": 95, "pool": 65, "copy": 0, "recurrent": 240, "host": 25, "overhead": 10,
    "in use": 215, "weights": 215, "activations": 190, "cache": 165, "gradients": 130,
    "optimizer": 335,
    "workspace": 275, "context": 45, "slack": 95, "free": 100, "dense": 275, "experts": 240,
    "buffers": 65, "logits": 10,
    "head": 10, "states": 240, "tensor messages": 65, "context messages": 80,
    "expert messages": 50, "data messages": 95, "bubble": 25, "waiting": 100,
    "launches": 45, "prefill attention": 335, "decode attention": 305, "collectives": 65,
    "cell": 215, "connection": 25, "other placements": 165, "best trade-off": 215, "advised": 165,
    "least energy": 335,
}  # fmt: skip
"""Class of operators, part of memory or of time, or state -> hue, degrees. It is the same in every
answer; what has none is grey. Devices have the brighter colours of the style sheet, in the order in
which they were chosen."""


def coloured(field: str, used: Iterable[object]) -> Encoding:
    """Parts or states in their own colours.

    Args:
        field: name of the field.
        used: its values, in the order of the legend.
    """
    names = [str(name) for name in dict.fromkeys(used)]
    return category(field, scale={"domain": names, "range": [*map(colour_of, names)]})


def colour_of(name: str) -> str:
    """The colour of a part or a state."""
    hue, strength = HUES.get(name, 215), 55 if name in HUES else 8
    return f"light-dark(hsl({hue} {strength}% 47%), hsl({hue} {strength}% 64%))"


def bars_of(field: str) -> Encoding:
    """Names down the side of a bar chart, in the order of the rows."""
    return category(field, axis={"ticks": False, "domain": False, "labelLimit": 130})


def shown(**titles: str) -> list[Encoding]:
    """Fields of a tooltip: field -> title; numbers have three digits."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def layer(mark: str | Mapping[str, Any], **encoding: Encoding | list[Encoding] | None) -> Encoding:
    """One layer of a chart."""
    return {"mark": mark, "encoding": encoding}


def interval_cells(estimate: IntervalOut | PerformanceOut, unit: str) -> dict[str, Cell]:
    """Value, ends and text of an estimate; the unit may be empty."""
    text = quantity(estimate.value, unit)
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "text": text}


def interval_bars(field: str, count: int, x: Encoding, **tooltip: str) -> dict[str, Any]:
    """A specification of bars with their intervals, one a name.

    Args:
        field: the names.
        count: number of names.
        x: encoding of the field `value`; the ends are `low` and `high`.
        tooltip: field -> title.
    """
    ends = {end: {**x, "field": end} for end in ("low", "high")}
    dark = "var(--ink)"
    ticks = {"type": "tick", "thickness": 2, "size": 10, "color": dark}
    return {
        "height": BAR_STEP_PX * count,
        "encoding": {"y": bars_of(field), "tooltip": shown(**tooltip)},
        "layer": [
            layer({"type": "bar", "height": 16, "opacity": 0.75}, x=x),
            layer({"type": "rule", "strokeWidth": 2, "color": dark}, x=ends["low"],
                  x2={"field": "high"}),
            *(layer(ticks, x=end) for end in ends.values()),
        ],
    }  # fmt: skip


def interval_curve(
    x: Encoding,
    y: Encoding,
    colour: Encoding | None = None,
    shape: Encoding | None = None,
    **tooltip: str,
) -> dict[str, Any]:
    """A specification of curves with intervals; the fields of y are `value`, `low` and `high`.

    Args:
        x: encoding of what the curves are drawn over.
        y: encoding of the field `value`.
        colour: encoding of what distinguishes the curves; None for one curve.
        shape: encoding of the shape of the points; None for circles.
        tooltip: field -> title.
    """
    point = layer({"type": "point", "size": 46, "opacity": 1}, y=y, tooltip=shown(**tooltip))
    point["encoding"] |= {} if shape is None else {"shape": shape}
    return {
        "height": 250,
        "encoding": {"x": x, "color": colour or {"value": "var(--c1)"}},
        "layer": [
            layer({"type": "area", "opacity": 0.14}, y={**y, "field": "low"}, y2={"field": "high"}),
            layer("line", y=y),
            point,
        ],
    }


def joined_points(
    x: Encoding, y: Encoding, label: str, line: Mapping[str, Encoding], **points: Any
) -> dict[str, Any]:
    """Points that a line joins, each with its label.

    Args:
        x: the axis across.
        y: the axis upwards.
        label: field of the labels.
        line: further encodings of the line.
        points: further encodings of the points.
    """
    text = {"type": "text", "dy": -12, "fontSize": 11}
    return {
        "height": 280,
        "encoding": {"x": x, "y": y},
        "layer": [
            layer({"type": "line", "color": "var(--line)"}, **line),
            layer({"type": "point", "size": 80, "opacity": 1}, **points),
            layer(text, text={"field": label}),
        ],
    }


def marked(field: str, at: Iterable[float], dash: Sequence[int] = (4, 4)) -> Encoding:
    """A layer of vertical lines at values of the field of the horizontal axis."""
    mark = {"type": "rule", "strokeDash": list(dash)}
    own = layer(mark, color={"value": "var(--quiet)"})
    return {"data": {"values": [{field: value} for value in at]}, **own}


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
