"""A table of devices and batch sizes whose cells are coloured by value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.data.device import Device
from forerun.service.http.pages.compare.form import Measure
from forerun.service.http.pages.interval_charts import fit_in_words
from forerun.service.http.pages.numbers import MISSING, short
from forerun.service.http.pages.predict_answer import BatchPoint

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
    note = fit_in_words(point.answer)
    memory = {"may not fit": "; the memory may not be enough", "fits": ""}
    return Cell(short(value), steps[short(value)], f"{short(value)}{memory.get(note, '')}")


def _value(point: BatchPoint, measure: Measure) -> float | None:
    metric = "energy_j" if measure == "j_per_sample" else "latency_ms"
    estimate = point.answer.metrics.get(metric)
    if estimate is None or not estimate.value:
        return None
    if measure == "j_per_sample":
        return estimate.value / point.batch_size
    return 1e3 * point.batch_size / estimate.value if measure == "samples_per_s" else estimate.value
