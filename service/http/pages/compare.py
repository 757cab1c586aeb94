"""The page *Compare*: one network on many devices."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.list_prices import list_price
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import (
    MISSING,
    Chart,
    coloured,
    label,
    layer,
    number,
    short,
    shown,
)
from forerun.service.http.pages.charts import fit_in_words
from forerun.service.http.pages.rendering import form_page
from forerun.service.http.pages.run_form import (
    BatchPoint,
    Name,
    RunForm,
    batch_points,
    form_context,
    network_presets,
)
from forerun.service.http.rank_requests import rank_of
from forerun.service.http.schemas import LimitsIn, Most, RankIn
from forerun.service.schemas.answers import IntervalOut

MOST_COMPARED = 24
COMPARED = (
    "h100-sxm-80gb", "a100-pcie-80gb", "rtx-4090", "l40s", "a10g", "l4", "t4", "v100-sxm2-16gb",
)  # fmt: skip
"""Devices that are compared when the address names none."""

Measure = Literal["latency_ms", "samples_per_s", "j_per_sample"]
By = Literal["latency_ms", "energy_j", "cost", "power_w"]
MEASURES: Mapping[Measure, str] = {
    "latency_ms": "time of one run, ms",
    "samples_per_s": "samples per second",
    "j_per_sample": "energy of one sample, J",
}
OBJECTIVES: Mapping[By, str] = {
    "latency_ms": "least time",
    "energy_j": "least energy",
    "cost": "least cost, by the prices below",
    "power_w": "least power",
}
_PRICE = re.compile(r"\s*([^\s=:,;]+)\s*[=:\s]\s*(\d+\.?\d*|\.\d+)\s*")


class BadPrices(InputError):
    """The prices are not written as `device=price`."""


class CompareForm(RunForm):
    """One network on many devices."""

    devices: list[Name] = Field(default=list(COMPARED), max_length=MOST_COMPARED)
    measure: Measure = "latency_ms"
    objective: By = "latency_ms"
    most_latency_ms: Most | None = None
    most_power_w: Most | None = None
    prices: str | None = Field(default=None, max_length=2_000)

    def prices_per_hour(self) -> dict[str, float]:
        """Device of the form -> USD of an hour: as given, or the list price where one is known.

        Raises:
            BadPrices: a part of the text is no `device=price`.
        """
        listed = {name: list_price(name) for name in dict.fromkeys(self.devices)}
        found = {name: own.usd_per_device_hour for name, own in listed.items() if own is not None}
        for part in filter(str.strip, re.split(r"[,;\n]", self.prices or "")):
            matched = _PRICE.fullmatch(part)
            if matched is None:
                raise BadPrices(f"prices: {part.strip()!r:.60} is not written as l4=0.71.")
            if matched[1] in listed:
                found[matched[1]] = float(matched[2])
        return found

    def written_prices(self) -> str:
        """The prices as the form takes them."""
        return ", ".join(f"{name}={price:.4g}" for name, price in self.prices_per_hour().items())

    def ranking(self, devices: Sequence[str], must_fit: bool = True) -> RankIn:
        """The request that ranks devices; whose memory must be enough, or may be unknown."""
        asked = self.asked(devices[0])
        prices = self.prices_per_hour() if self.objective == "cost" else {}
        most = {"latency_ms": self.most_latency_ms, "power_w": self.most_power_w}
        return RankIn(
            workload=self.workload(),
            devices=list(dict.fromkeys(devices)),
            prices_per_hour={name: price for name, price in prices.items() if name in devices},
            software=asked.software,
            operation=asked.operation,
            objective=self.objective,
            limits=LimitsIn(**most, must_fit=must_fit),
        )


STEPS = 6
"""Number of shades."""


@dataclass(frozen=True)
class Cell:
    """One device at one batch size.

    Attributes:
        text: the value, or a dash where it is not known or the memory is not enough.
        step: shade from 1, the worst, to `STEPS`, the best; 0 for none.
        note: interval or reason, for those who point at the cell.
    """

    text: str
    step: int
    note: str


@dataclass(frozen=True)
class HeatMap:
    """Rows of cells: device -> one cell a batch size."""

    sizes: Sequence[int]
    rows: Mapping[Device, Sequence[Cell]]


def heat_map(points: Sequence[BatchPoint], sizes: Sequence[int], measure: Measure) -> HeatMap:
    """The table of a measure.

    Args:
        points: answers, at most one for a device and a batch size.
        sizes: batch sizes, the columns.
        measure: what the cells show; little time and energy are good, and many samples.
    """
    by_place = {(point.device, point.batch_size): point for point in points}
    devices = list(dict.fromkeys(point.device for point in points))
    values = {place: _value(point, measure) for place, point in by_place.items()}
    known = {v for place, v in values.items() if v is not None and _runs(by_place[place])}
    # What reads the same has the same shade.
    best_last = list(dict.fromkeys(map(short, sorted(known, reverse=measure != "samples_per_s"))))
    steps = {text: 1 + STEPS * rank // len(best_last) for rank, text in enumerate(best_last)}
    return HeatMap(
        sizes,
        {
            device: [
                _cell(by_place.get((device, size)), values.get((device, size)), steps)
                for size in sizes
            ]
            for device in devices
        },
    )


def _runs(point: BatchPoint) -> bool:
    """Whether the best estimate of the memory fits, or is not known."""
    return fit_in_words(point.answer) != "does not fit"


def _cell(point: BatchPoint | None, value: float | None, steps: Mapping[str, int]) -> Cell:
    if point is None or value is None:
        return Cell(MISSING, 0, "not known")
    if not _runs(point):
        return Cell(MISSING, 0, "the memory is not enough")
    unsure = fit_in_words(point.answer) == "may not fit"
    note = "; the memory may not be enough" if unsure else ""
    return Cell(short(value), steps[short(value)], f"{short(value)}{note}")


def _value(point: BatchPoint, measure: Measure) -> float | None:
    metric = "energy_j" if measure == "j_per_sample" else "latency_ms"
    estimate = point.answer.metrics.get(metric)
    if estimate is None or not estimate.value:
        return None
    if measure == "j_per_sample":
        return estimate.value / point.batch_size
    return 1e3 * point.batch_size / estimate.value if measure == "samples_per_s" else estimate.value


PATH = "/compare"
SIZES = (1, 4, 16, 64, 256, 1024)
"""Batch sizes of the heat map, besides that of the form."""


def _fields(form: CompareForm, answers: Answers) -> dict[str, Any]:
    own = {"measures": MEASURES, "objectives": OBJECTIVES, "prices": form.written_prices()}
    return own | form_context(form, answers)


def _answer(form: CompareForm, answers: Answers) -> dict[str, Any]:
    """The context of `compare_answer.html`."""
    if form.graph is None or not form.devices:
        links = network_presets(PATH, COMPARED)
        return {"form": form, "heat": None, "presets": links, "further": []}
    sizes = sorted({*SIZES, form.batch_size})
    points = batch_points(form, answers, sizes)
    chosen = [point for point in points if point.batch_size == form.batch_size]
    prices = {answers.device(name): price for name, price in form.prices_per_hour().items()}
    ranking = rank_of(form.ranking(form.devices), answers)
    unsure = [each.device.name for each in ranking.excluded if any(map(_unsure, each.reasons))]
    others = rank_of(form.ranking(unsure, must_fit=False), answers) if unsure else None
    left_out = {each.device.name: each.reasons for each in ranking.excluded}
    left_out = {name: why for name, why in left_out.items() if name not in unsure}
    left_out |= {each.device.name: each.reasons for each in (others.excluded if others else ())}
    fronts = (front_chart(chosen, None), front_chart(chosen, prices) if prices else None)
    return {
        "of_a_million": of_a_million,
        "subject": f"{form.named} on {len(set(form.devices))} devices",
        "form": form,
        "measure": MEASURES[form.measure],
        "objective": OBJECTIVES[form.objective],
        "heat": heat_map(points, sizes, form.measure),
        "ranking": ranking,
        "others": others,
        "left_out": left_out,
        "titles": {point.device.name: label(point.device) for point in points},
        "fronts": [chart for chart in fronts if chart],
    }


def _unsure(reason: str) -> bool:
    return reason.startswith("whether it fits is not known")


def of_a_million(cost: IntervalOut) -> IntervalOut:
    """The price of a million runs, since one costs next to nothing."""
    return cost.times(1e6, "USD")


def front_chart(points: Sequence[BatchPoint], prices: dict[Device, float] | None) -> Chart | None:
    """Time against energy or cost of a run, with the devices that no other beats in both.

    Args:
        points: answers for devices at one batch size.
        prices: device -> price of an hour; energy is drawn when None.

    Returns:
        The chart; None where fewer than two devices have both.
    """
    found = []
    for point in points:
        time, energy = (point.answer.metrics.get(name) for name in ("latency_ms", "energy_j"))
        if time is None or (prices is None and energy is None):
            continue
        if prices is None and energy is not None:
            found.append((point.device, time.value, energy.value / point.batch_size))
        elif prices and point.device in prices:
            price = 1e6 * prices[point.device] * time.value / 3.6e6 / point.batch_size
            found.append((point.device, time.value, price))
    if len(found) < 2:
        return None
    axis = "energy of a sample, J" if prices is None else "price of a million samples, USD"
    rows = [
        {"device": label(device), "ms": ms, "other": other,
         "text": f"{short(ms)} ms, {short(other)}",
         "front": "best trade-off" if _is_on_front(ms, other, found) else "beaten"}
        for device, ms, other in found
    ]  # fmt: skip
    x, y = number("ms", "time of one run, ms"), number("other", axis)
    mark = {"type": "text", "align": "left", "dx": 9, "fontSize": 12, "color": "var(--ink)"}
    spec = {
        "height": 300,
        "encoding": {"x": x, "y": y, "tooltip": shown(device="device", text="time and other")},
        "layer": [
            layer(
                {"type": "point", "size": 90, "opacity": 1},
                color=coloured("front", ("best trade-off", "beaten")),
            ),
            layer(mark, text={"field": "device"}),
        ],
    }
    best = [str(row["device"]) for row in rows if row["front"] == "best trade-off"]
    summary = f"Time against {axis}; no other device is better in both than {', '.join(best)}."
    columns = {"device": "device", "ms": "time, ms", "other": axis, "front": ""}
    return Chart(f"Time and {axis.partition(',')[0]}", summary, spec, rows, columns)


def _is_on_front(ms: float, other: float, found: Sequence[tuple[Device, float, float]]) -> bool:
    """Whether no device is at least as good in both, and better in one."""
    return not any((a <= ms and b <= other) and (a < ms or b < other) for _, a, b in found)


router = form_page(PATH, "compare", CompareForm, _answer, _fields)
