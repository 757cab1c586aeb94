"""The charts of the page *Predict*."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import COMPUTE_PRECISION, traffic_bytes
from forerun.service.http.pages.chart import Cell, Chart, log_ticks
from forerun.service.http.pages.numbers import label, short
from forerun.service.http.pages.predict_answer import METRICS, BatchPoint, DeviceAnswer
from forerun.service.schemas.answers import PredictionOut

BAR_STEP = 38
SHADES = [f"var(--c{n})" for n in range(1, 9)]
FITS = ("fits", "may not fit", "does not fit", "not known")
_DEVICE: dict[str, Any] = {"field": "device", "type": "nominal", "title": None}
_DEVICE_AXIS: dict[str, Any] = {
    **_DEVICE, "sort": None, "axis": {"ticks": False, "domain": False, "labelLimit": 130},
}  # fmt: skip


def fit_in_words(answer: PredictionOut) -> str:
    """Whether the memory is enough: by the upper end, by the best estimate alone, or not."""
    if answer.fits is None:
        return FITS[3]
    if answer.fits.fits:
        return FITS[0]
    return FITS[1] if answer.fits.fits_at_value else FITS[2]


def estimate_chart(metric: str, found: Sequence[DeviceAnswer]) -> Chart | None:
    """A metric on every device, as bars with intervals; None where fewer than two have it."""
    rows: list[Mapping[str, Cell]] = []
    unit = ""
    for each in found:
        estimate = each.answer.metrics.get(metric) if each.answer else None
        if estimate is not None:
            unit = estimate.unit
            rows.append({
                "device": label(each.device), "value": estimate.value, "low": estimate.low,
                "high": estimate.high, "label": f"{short(estimate.value)} {unit}",
            })  # fmt: skip
    if len(rows) < 2:
        return None
    x = {"type": "quantitative", "title": unit, "axis": {"tickCount": 5}}
    layers = [
        {"mark": {"type": "bar", "height": 16, "opacity": 0.75, "cornerRadiusEnd": 3},
         "encoding": {"x": {"field": "value", **x}}},
        {"mark": {"type": "rule", "strokeWidth": 2, "color": "var(--ink)"},
         "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}}},
        *({"mark": {"type": "tick", "thickness": 2, "size": 10, "color": "var(--ink)"},
           "encoding": {"x": {"field": end, **x}}} for end in ("low", "high")),
    ]  # fmt: skip
    tooltip = [{"field": "device"}, {"field": "label", "title": "estimate"}]
    spec = {
        "height": {"step": BAR_STEP},
        "encoding": {"y": _DEVICE_AXIS, "tooltip": tooltip},
        "layer": layers,
    }
    best = min(rows, key=lambda row: row["value"])  # type: ignore[arg-type, return-value]
    summary = (
        f"{METRICS[metric]} on {len(rows)} devices; least on {best['device']}: {best['label']}."
    )
    columns = {"device": "device", "value": f"estimate, {unit}", "low": "low", "high": "high"}
    return Chart(METRICS[metric], summary, spec, rows, columns)


def batch_chart(points: Sequence[BatchPoint], chosen: int, rate: bool) -> Chart:
    """Time of a run, or samples per second, over the batch size, with intervals.

    Args:
        points: answers over devices and batch sizes.
        chosen: batch size that the form asks for, which is marked.
        rate: whether samples per second are drawn, in place of the time.
    """
    rows: list[Mapping[str, Cell]] = []
    for point in points:
        estimate = point.answer.metrics.get("latency_ms")
        if estimate is None:
            continue
        ends: tuple[float | None, ...] = (estimate.value, estimate.low, estimate.high)
        if rate:
            per_second = [None if not ms else 1e3 * point.batch_size / ms for ms in ends]
            ends = per_second[0], per_second[2], per_second[1]
        rows.append({
            "device": label(point.device), "batch": point.batch_size, "value": ends[0],
            "low": ends[1], "high": ends[2], "memory": fit_in_words(point.answer),
        })  # fmt: skip
    title, unit = ("Samples per second", "samples/s") if rate else ("Time of one run", "ms")
    shapes = ["circle", "triangle-up", "cross", "square"]
    y = {
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"tickCount": 6, "format": "~s" if rate else "~g"},
    }
    memory = {
        "field": "memory", "type": "nominal", "title": None, "sort": None,
        "scale": {"domain": list(FITS), "range": shapes},
        "legend": {"orient": "bottom"},
    }  # fmt: skip
    tooltip = [
        {"field": "device"}, {"field": "batch"}, {"field": "value", "title": unit, "format": ".3~s" if rate else ".3~r"},
        {"field": "memory"},
    ]  # fmt: skip
    spec = {
        "height": 300,
        "encoding": {
            "x": {"field": "batch", "type": "quantitative", "scale": {"type": "log", "base": 2, "nice": False},
                  "title": "batch size", "axis": {"grid": False, "labelOverlap": True}},
            "color": {**_DEVICE, "sort": None, "legend": {"columns": 2}},
        },
        "layer": [
            {"mark": {"type": "area", "opacity": 0.13},
             "encoding": {"y": {"field": "low", **y, "title": unit}, "y2": {"field": "high"}}},
            {"mark": "line", "encoding": {"y": {"field": "value", **y}}},
            {"mark": {"type": "point", "size": 46, "opacity": 1},
             "encoding": {"y": {"field": "value", **y}, "shape": memory, "tooltip": tooltip}},
            {"data": {"values": [{"batch": chosen}]},
             "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--quiet)"},
             "encoding": {"color": {"value": "var(--quiet)"}}},
        ],
    }  # fmt: skip
    summary = (
        f"{title} over batch sizes, for each device, with intervals; batch {chosen} is marked."
    )
    columns = {
        "device": "device", "batch": "batch size", "value": unit, "low": "low", "high": "high",
        "memory": "memory",
    }  # fmt: skip
    return Chart(f"{title} over batch size", summary, spec, rows, columns)


def parts_chart(found: Sequence[DeviceAnswer], field: str, title: str, unit: str) -> Chart | None:
    """What a total consists of on every device, as stacked bars; None where it is not known.

    Args:
        found: answers for devices.
        field: `breakdown_ms` or `breakdown_mib`.
        title: heading.
        unit: unit of the parts.
    """
    rows: list[Mapping[str, Cell]] = []
    for each in found:
        parts: Mapping[str, float] = getattr(each.answer, field) if each.answer else {}
        total = sum(parts.values())
        rows += [
            {"device": label(each.device), "part": part, "amount": amount, "share": amount / total}
            for part, amount in sorted(parts.items(), key=lambda item: -item[1])
            if amount > 0.0
        ]
    if not rows:
        return None
    order = list(dict.fromkeys(str(row["part"]) for row in rows))
    spec = {
        "height": {"step": BAR_STEP},
        "mark": {"type": "bar", "height": 20},
        "encoding": {
            "y": _DEVICE_AXIS,
            "x": {"field": "amount", "type": "quantitative", "title": unit, "axis": {"tickCount": 5}},
            "color": {"field": "part", "type": "nominal", "title": None, "sort": order},
            "order": {"field": "amount", "sort": "descending"},
            "tooltip": [
                {"field": "device"}, {"field": "part"},
                {"field": "amount", "title": unit, "format": ".3~r"},
                {"field": "share", "format": ".0%"},
            ],
        },
    }  # fmt: skip
    summary = f"{title}, by device; the largest part is {order[0]}."
    columns = {"device": "device", "part": "part", "amount": unit}
    return Chart(title, summary, spec, rows, columns)


def roofline_chart(each: DeviceAnswer) -> Chart | None:
    """Arithmetic intensity and attained rate of every operator class, under the device's roof.

    None where the sheet has no peak, or where no class does arithmetic in a known time.
    """
    answer, query = each.answer, each.query
    if answer is None or not each.device.has_sheet:
        return None
    try:
        peak = each.device.peak(COMPUTE_PRECISION[query.run.precision], matrix=True)
    except InputError:
        return None
    rows = [
        {
            "class": name,
            "intensity": intensity,
            "tflops": rate,
            "ms": ms,
            "bound": min(peak, intensity * each.device.bandwidth_gbs / 1e3),
        }
        for name, intensity, rate, ms in _classes(query, answer.breakdown_ms)
    ]
    if not rows:
        return None
    ridge = peak * 1e3 / each.device.bandwidth_gbs
    least = min(0.05, *(row["intensity"] / 2 for row in rows))
    most = max(4 * ridge, *(row["intensity"] * 2 for row in rows))
    roof = [
        {"intensity": at, "tflops": min(peak, at * each.device.bandwidth_gbs / 1e3)}
        for at in (least, ridge, most)
    ]
    x = {"field": "intensity", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "title": "FLOP per byte", "axis": {"tickCount": 6, "format": "~g"}}  # fmt: skip
    y = {"field": "tflops", "type": "quantitative", "scale": {"type": "log"},
         "title": "TFLOP/s", "axis": {"tickCount": 6, "format": "~g"}}  # fmt: skip
    spec = {
        "height": 300,
        "encoding": {"x": x, "y": y},
        "layer": [
            {"data": {"values": roof}, "mark": {"type": "line", "color": "var(--quiet)"}},
            {"mark": {"type": "point", "opacity": 0.85},
             "encoding": {
                 "color": {"field": "class", "type": "nominal", "title": None, "sort": None},
                 "size": {"field": "ms", "type": "quantitative", "legend": None,
                          "scale": {"range": [40, 900]}},
                 "tooltip": [
                     {"field": "class"}, {"field": "tflops", "title": "TFLOP/s", "format": ".3~r"},
                     {"field": "bound", "title": "roof, TFLOP/s", "format": ".3~r"},
                     {"field": "ms", "format": ".3~r"}]}},
        ],
    }  # fmt: skip
    title = f"Roofline of {label(each.device)}"
    summary = (
        f"Operator classes under the roof of {short(peak)} TFLOP/s and "
        f"{short(each.device.bandwidth_gbs)} GB/s; the area of a point is its time."
    )
    columns = {
        "class": "operators", "intensity": "FLOP per byte", "tflops": "TFLOP/s",
        "bound": "roof, TFLOP/s", "ms": "ms",
    }  # fmt: skip
    return Chart(title, summary, spec, rows, columns)


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
