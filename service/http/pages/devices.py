"""The page *Devices*, and a page of each device: figures, a roofline, and what was measured."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from starlette.responses import HTMLResponse

from forerun.data.device import Device
from forerun.features.hardware import sheet_vector
from forerun.models.artifact.training_record import TrainingRecord
from forerun.service.http.pages.chart import Cell, Chart, category, layer, logarithmic, shown
from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.http.routes.devices import DeviceName
from forerun.service.http.state import TheAnswers


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured values of one device in the training set, alike in all that is named here.

    Attributes:
        device: name of the device, as the dataset gives it.
        dataset: name of the bundle.
        kind: kind of workload; empty where it was not recorded.
        metric: name of the metric; empty likewise.
        phase: `inference` or `training`; empty where the workload has none.
        precision: number format of the run; empty likewise.
        runtime: how the operators are executed; empty likewise.
        values: number of measured values; None where only their presence was recorded.
    """

    device: str
    dataset: str
    kind: str = ""
    metric: str = ""
    phase: str = ""
    precision: str = ""
    runtime: str = ""
    values: int | None = None


FIELDS = ("dataset", "kind", "metric", "phase", "precision", "runtime")
"""Fields of `Measured` that distinguish measured values of one device."""


def measured(record: TrainingRecord) -> tuple[Measured, ...]:
    """All measured values of a training set.

    A dataset whose values were not counted by device has one row for each of its devices, without
    a number; one without devices has none.
    """
    found = [
        Measured(dataset=dataset, values=values, **asdict(setting))
        for dataset, counted in record.counts.items()
        for setting, values in counted.items()
    ]
    found += [
        Measured(device, dataset)
        for dataset, keys in record.keys.items()
        if dataset not in record.counts
        for device in keys.get("device", ())
    ]
    return tuple(found)


def values_by_device(rows: Iterable[Measured]) -> Counter[str]:
    """Device -> number of its measured values; 0 where only their presence is known."""
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row.device] += row.values or 0
    return counted


@dataclass(frozen=True)
class Pivot:
    """Numbers of measured values by device and by one field.

    Attributes:
        by: the field.
        columns: values of the field, the one with the most measured values first.
        devices: names of devices, the one with the most measured values first.
        cells: (device, column) -> number of values; None where only their presence is known.
    """

    by: str
    columns: Sequence[str]
    devices: Sequence[str]
    cells: dict[tuple[str, str], int | None]


def pivot(rows: Sequence[Measured], by: str) -> Pivot:
    """Count measured values by device and by one of `FIELDS`; rows without the field are left out.

    Args:
        rows: measured values.
        by: name of the field.
    """
    cells: dict[tuple[str, str], int | None] = {}
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for row in rows:
        place = row.device, getattr(row, by)
        if not place[1]:
            continue
        known = [number for number in (cells.get(place), row.values) if number is not None]
        cells[place] = sum(known) if known else None
        for count, name in zip(counts, place, strict=True):
            count[name] += row.values or 0
    devices, columns = ([name for name, _ in count.most_common()] for count in counts)
    return Pivot(by, columns, devices, cells)


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


def similar(device: Device, devices: Iterable[Device]) -> list[Device]:
    """The four devices of the same kind with the nearest figures, nearest first.

    The distance is the mean difference of the logarithms of the figures that both sheets give.
    """
    own = sheet_vector(device)
    distances = []
    for other in devices:
        gap = np.abs(sheet_vector(other) - own)
        if other.kind == device.kind and other.name != device.name and np.isfinite(gap).any():
            distances.append((float(np.nanmean(gap)), other.name, other))
    return [other for _, _, other in sorted(distances, key=lambda found: found[:2])[:4]]


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


PATH = "/devices"

router = page_router()


@router.get(PATH)
async def devices_page(answers: TheAnswers) -> HTMLResponse:
    """All spec sheets, with the number of values that were measured on each device."""
    record = answers.adaptation.current().loaded.record
    catalog = answers.devices.catalog
    return rendered(
        "devices/devices.html",
        PATH,
        devices=sorted(catalog, key=lambda device: (device.kind, device.title.lower())),
        counted=values_by_device(measured(record)),
        half=half_rate,
        filters={
            "vendor": sorted({device.vendor for device in catalog}, key=str.lower),
            "kind": sorted({device.kind for device in catalog}),
        },
    )


@router.get(f"{PATH}/{{name}}")
def device_page(name: DeviceName, answers: TheAnswers) -> HTMLResponse:
    """One spec sheet with sources, its roofline, and what was measured on the device."""
    device = answers.devices.get(name)
    rows = measured(answers.adaptation.current().loaded.record)
    return rendered(
        "devices/device.html",
        PATH,
        device=device,
        figures=figures(device),
        unknown=unknown(device),
        rows=[row for row in rows if row.device == device.name],
        similar=similar(device, answers.devices.catalog),
        chart=roofline(device),
    )


def half_rate(device: Device) -> float | None:
    """Peak in fp16 or bf16, whichever is higher, 1e12 FLOP/s; None where neither is given."""
    rates = [device.peak_tflops.get(precision) for precision in ("fp16", "bf16")]
    return max((rate for rate in rates if rate is not None), default=None)
