"""Run a model on this machine's processor, and compare the prediction with the measurement."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from forerun.data.collectors.latency.cpu import CpuRun
from forerun.data.collectors.system.host import usable_cpus
from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownDevice
from forerun.data.measurements import Measurements
from forerun.models.prediction import Estimate as Predicted
from forerun.service.answers.verification import checked, local_cpu, measured_runs
from forerun.service.python.own_measurements.adapting import Adaptation, adapt
from forerun.service.python.session import Session, session
from forerun.service.python.view import View, Viewed, text_of
from forerun.service.schemas.answers import IntervalOut
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.stores.device_sheets import local_device

MY_CPU = "my-cpu"
DISTURBED = "other processes were busy meanwhile, so the measured times are doubtful"


@dataclass(frozen=True, slots=True)
class Compared:
    """One prediction against a measured value.

    Attributes:
        value: predicted value.
        low, high: ends of the prediction interval; None without one.
        ratio: measured over predicted value.
        inside: whether the measured value lies in the interval; None without one.
    """

    value: float
    low: float | None
    high: float | None
    ratio: float
    inside: bool | None

    @classmethod
    def of(cls, predicted: Predicted | IntervalOut | None, measured: float) -> "Compared | None":
        """The comparison; None where there is no prediction."""
        if predicted is None or not predicted.value > 0.0:
            return None
        low, high = predicted.low, predicted.high
        inside = None if low is None or high is None else low <= measured <= high
        return cls(predicted.value, low, high, measured / predicted.value, inside)


@dataclass(frozen=True, slots=True)
class Verified:
    """One metric of one run, predicted and measured.

    Attributes:
        batch_size: samples in the run.
        metric: name of the metric.
        measured: measured value, in the metric's unit.
        before: the prediction without any measurement of this machine; None where not known.
        after: the prediction after adapting to all measurements of this machine except this run;
            None where there are no others, or where they do not suffice.
    """

    batch_size: int
    metric: str
    measured: float
    before: Compared | None
    after: Compared | None


@dataclass(frozen=True)
class Verification(Viewed):
    """Predictions against measurements on this machine.

    Attributes:
        model: name of the model.
        device: name of this machine.
        results: one for each run and metric.
        notes: what makes a measurement doubtful.
        measurements: the measurements as `forerun.adapt` takes them.
        sheet: the device that the predictions were made for.
    """

    model: str
    device: str
    results: tuple[Verified, ...]
    notes: tuple[str, ...]
    measurements: tuple[MeasuredRow, ...] = field(repr=False)
    sheet: Device = field(repr=False)

    def __iter__(self) -> Iterator[Verified]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def adapt(self) -> Adaptation:
        """Adapt the predictor to these measurements, and register this machine if it is new.

        Raises:
            InputError: no predictor can learn from a measurement.
        """
        local_device(session().devices, self.device, lambda name: self.sheet)
        return adapt(self.measurements, device=self.device)

    def to_dict(self) -> dict[str, Any]:
        """The results and the measurements as plain dictionaries and lists."""
        return {
            "model": self.model,
            "device": self.device,
            "results": list(self.records()),
            "notes": list(self.notes),
        }

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row for each run and metric."""
        for result in self.results:
            row: dict[str, Any] = {
                "batch_size": result.batch_size,
                "metric": result.metric,
                "measured": result.measured,
            }
            for label, compared in (("before", result.before), ("after", result.after)):
                row |= {f"{name}_{label}": own for name, own in columns_of(compared).items()}
            yield row

    def view(self) -> View:
        """One row for each run and metric."""
        headings = ("batch", "metric", "measured", "predicted", "ratio", "inside")
        rows = [
            [
                str(result.batch_size),
                result.metric,
                text_of(result.metric, result.measured),
                *words_of(result.before, result.metric),
                *words_of(result.after, result.metric),
            ]
            for result in self.results
        ]
        lines = [
            "ratio: measured over predicted; inside: whether the 90 % interval holds the measured",
            "adapted: to all measurements of this machine except the run itself",
            *self.notes,
        ]
        title = f"{self.model} on {self.device}"
        return View(title, (*headings, "adapted", "ratio", "inside"), rows, lines)


def verify(
    model: str | PathLike[str],
    *,
    batch_sizes: Sequence[int] = (1,),
    device: str = MY_CPU,
    threads: int | None = None,
    seconds: float = 1.0,
    sequence_length: int | None = None,
) -> Verification:
    """Run an ONNX file here with onnxruntime, and compare the prediction with the measurement.

    Each batch size is measured in a process of its own.

    Args:
        model: ONNX file.
        batch_sizes: bound to free batch dimensions; a file that fixes its batch runs at that.
        device: name of this machine; a new name gets a detected spec sheet.
        threads: computing threads; all that this process may use when None.
        seconds: measured time of each run.
        sequence_length: bound to free sequence dimensions.

    Raises:
        UnreadableModel: the file is not a readable model.
        InputError: it cannot be run here; the message says why.
    """
    if not batch_sizes or min(batch_sizes) < 1:
        raise InputError(f"batch_sizes {list(batch_sizes)!r}: give numbers from 1.")
    file, here = Path(model), session()
    sheet = local_cpu(device, here.devices)
    how = CpuRun(threads or usable_cpus(), seconds)
    runs = measured_runs(file, batch_sizes, how, sheet.name, sequence_length)
    rows = tuple(run.row for run in runs)
    found = checked(rows, sheet, here.adaptation.base, earlier(sheet.name, here))
    notes = (DISTURBED,) if any(run.disturbed for run in runs) else ()
    results = tuple(
        Verified(size, metric, value, Compared.of(before, value), Compared.of(after, value))
        for size, metric, value, before, after in found
    )
    return Verification(file.name, sheet.name, results, notes, rows, sheet)


def earlier(name: str, here: Session) -> Measurements | None:
    """The measurements of a device that are in use; None where there are none."""
    try:
        return here.adaptation.rows_of(name)
    except UnknownDevice:
        return None


def words_of(compared: Compared | None, metric: str) -> list[str]:
    """Predicted value, ratio, and whether the interval holds the measured value, as texts."""
    if compared is None:
        return ["not known", "", ""]
    held = "" if compared.inside is None else "yes" if compared.inside else "no"
    return [text_of(metric, compared.value), f"x{compared.ratio:.2f}", held]


def columns_of(compared: Compared | None) -> dict[str, Any]:
    """Columns of a data frame; all are None where there is no prediction."""
    names = {"predicted": "value", **{name: name for name in ("low", "high", "ratio", "inside")}}
    return {column: getattr(compared, name, None) for column, name in names.items()}
