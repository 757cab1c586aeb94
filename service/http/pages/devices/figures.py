"""The figures of a spec sheet with units and sources, devices with similar ones, and a roofline."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.data.device import Device
from forerun.features.hardware import sheet_vector
from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.encodings import category, layer, logarithmic, shown

UNITS: Mapping[str, tuple[str, str]] = {
    "memory_gib": ("Memory", "GiB"),
    "memory_bandwidth_gbs": ("Memory bandwidth", "GB/s"),
    "peak_tflops": ("Peak", "TFLOP/s"),
    "fp32_matrix_tflops": ("Peak of matrix products in fp32", "TFLOP/s"),
    "compute_units": ("Compute units", ""),
    "l2_mib": ("Shared cache", "MiB"),
    "boost_clock_mhz": ("Highest clock", "MHz"),
    "tdp_w": ("Design power", "W"),
    "idle_w": ("Idle power", "W"),
    "interconnect_gbs": ("Link to other devices", "GB/s"),
    "process_nm": ("Process", "nm"),
    "year": ("Year of release", ""),
}
"""Field of a sheet -> its name in words and its unit."""

INTENSITIES = (0.1, 10_000.0)
"""Lowest and highest arithmetic intensity of the roofline, FLOP per byte."""


@dataclass(frozen=True)
class Figure:
    """One figure of a sheet.

    Attributes:
        name: the figure in words.
        value: the figure as text.
        unit: its unit; empty where it has none.
        source: where it stands; empty where that is not known.
    """

    name: str
    value: str
    unit: str
    source: str


def figures(device: Device) -> list[Figure]:
    """Every figure that a sheet gives; peaks one by one, by precision."""
    found = []
    for field, value in device.figures().items():
        name, _, precision = field.partition(".")
        words, unit = UNITS[name]
        title = f"{words} in {precision}" if precision else words
        unit = unit.replace("FLOP", "OP") if precision == "int8" else unit
        text = f"{value:g}" if name == "year" else f"{value:,.6g}"
        found.append(Figure(title, text, unit, device.sources.get(field, "")))
    return found


def unknown(device: Device) -> list[str]:
    """Names of the figures that a sheet does not give."""
    given = {field.partition(".")[0] for field in device.figures()}
    rare = {"fp32_matrix_tflops"}  # most devices compute products at the ordinary rate
    return [words.lower() for field, (words, _) in UNITS.items() if field not in given | rare]


def similar(device: Device, devices: Iterable[Device], most: int = 4) -> list[Device]:
    """Devices of the same kind with the nearest figures, nearest first.

    The distance is the mean difference of the logarithms of the figures that both sheets give.
    """
    own = sheet_vector(device)
    distances = []
    for other in devices:
        gap = np.abs(sheet_vector(other) - own)
        if other.kind == device.kind and other.name != device.name and np.isfinite(gap).any():
            distances.append((float(np.nanmean(gap)), other.name, other))
    return [other for _, _, other in sorted(distances, key=lambda found: found[:2])[:most]]


def roofline(device: Device) -> Chart | None:
    """Attainable rate over arithmetic intensity, one line for each precision; None without a sheet.

    Precisions with equal peaks share a line.
    """
    if not device.has_sheet:
        return None
    by_peak: dict[float, list[str]] = {}
    for precision, peak in device.peak_tflops.items():
        by_peak.setdefault(peak, []).append(precision)
    slope = device.bandwidth_gbs / 1e3
    rows: list[dict[str, Cell]] = [
        {
            "precision": ", ".join(names),
            "intensity": intensity,
            "rate": min(peak, intensity * slope),
        }
        for peak, names in by_peak.items()
        for intensity in sorted({*INTENSITIES, peak / slope})
    ]
    rates = [float(row["rate"] or 0) for row in rows]
    return Chart(
        title="Roofline by precision",
        summary=f"Attainable rate of {device.title} over arithmetic intensity: it rises with the "
        f"memory bandwidth of {device.bandwidth_gbs:,.0f} GB/s up to the peak of each precision.",
        spec={
            "height": 300,
            "encoding": {
                "x": logarithmic("intensity", "arithmetic intensity, FLOP/byte", INTENSITIES),
                "y": logarithmic("rate", "attainable, TFLOP/s", rates),
                "tooltip": shown(precision="precision", intensity="FLOP/byte", rate="TFLOP/s"),
            },
            "layer": [
                layer({"type": "line", "point": True}, color=category("precision", legend=None)),
                {
                    "transform": [{"filter": f"datum.intensity == {INTENSITIES[-1]}"}],
                    "mark": {"type": "text", "align": "right", "dy": -8, "aria": False},
                    "encoding": {"text": {"field": "precision"}},
                },
            ],
        },
        rows=rows,
        columns={
            "precision": "precision",
            "intensity": "intensity, FLOP/byte",
            "rate": "attainable, TFLOP/s",
        },
    )
