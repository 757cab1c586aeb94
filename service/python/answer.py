"""Answers: the metrics of a workload on one device, on several, or at several settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, Self, overload

from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.service.python.view import (
    Answered,
    Estimate,
    Fit,
    Predicted,
    View,
    Viewed,
    columns_of,
    estimate_row,
    refusals,
    text_of,
)
from forerun.service.schemas.answers import (
    GRADES,
    NOT_CALIBRATED,
    AttributionOut,
    PredictionOut,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAIN = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Answer(Answered):
    """The predicted metrics of one workload on one device.

    Attributes:
        model: name of the model.
        device: name of the device.
        batch_size: samples in one run; None for a workload other than a network.
        precision: number format of the run; None where the workload has none.
        phase: inference or training; None where the workload has none.
        runtime: how the graph is executed.
        metrics: metric -> estimate; metrics that are not known are in `missing`.
        missing: metric without an estimate -> the reason.
        limits: inputs outside the training range, and other limits of the answer.
        in_domain: whether all inputs are in the training range.
        fits: whether the device's memory is enough; None where that is not known.
        breakdown_ms: operator class -> its time in milliseconds.
        breakdown_mib: what takes memory at the peak -> MiB.
        roofline_ms: time of the operators one by one by the spec sheet, which compiled kernels,
            Winograd transforms and TF32 may undercut; None where it cannot be computed.
        energy_per_sample_j: energy of a run divided by its samples; None where not known.
        unknown_operators: unknown operator -> count.
        version: version of the predictor that answered.
        content: the whole answer as HTTP gives it.
    """

    model: str
    device: str
    batch_size: int | None
    precision: str | None
    phase: str | None
    runtime: str
    metrics: Mapping[str, Estimate]
    missing: Mapping[str, str]
    limits: tuple[str, ...]
    in_domain: bool
    fits: Fit | None
    breakdown_ms: Mapping[str, float]
    breakdown_mib: Mapping[str, float]
    roofline_ms: float | None
    energy_per_sample_j: Estimate | None
    unknown_operators: Mapping[str, int]
    version: str
    content: PredictionOut = field(repr=False)

    @classmethod
    def of(cls, out: Any, **own: Any) -> Self:
        """An answer in this form; its own fields are `model`, and `query` to which it is one."""
        query: Query = own.pop("query")
        workload = query.workload
        return super().of(
            out,
            batch_size=workload.batch_size if isinstance(workload, Network) else None,
            precision=getattr(workload, "precision", None),
            phase=getattr(workload, "phase", None),
            runtime=query.software.runtime,
            roofline_ms=(out.roofline or {}).get("latency_ms"),
            energy_per_sample_j=_sample(out),
            version=out.predictor.version,
            **own,
        )

    latency_ms = Predicted("Wall time of one run, milliseconds")
    peak_memory_mib = Predicted("Peak memory of the device, MiB")
    allocated_memory_mib = Predicted("Peak of live tensors, MiB")
    reserved_memory_mib = Predicted("Peak of memory that the allocator holds, MiB")
    power_w = Predicted("Average power of the device during the run, W")
    energy_j = Predicted("Energy of one run, J")
    utilisation = Predicted("Share of the time the device was busy, 0 to 1")

    @property
    def attribution(self) -> AttributionOut | None:
        """The estimate divided among operators or loops; None unless asked with `explain=True`."""
        return self.content.attribution

    def __getitem__(self, metric: str) -> Estimate | None:
        return self.metrics.get(metric)

    def setting(self) -> str:
        """Batch size, precision and phase in words."""
        parts = [] if self.batch_size is None else [f"batch {self.batch_size}"]
        parts += [text for text in (self.precision, self.phase, self.runtime) if text]
        return ", ".join(parts)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row."""
        known = (name for name in MAIN if name in self.metrics)
        further = (name for name in self.metrics if name not in MAIN)
        asked = ("model", "device", "batch_size", "precision", "phase", "runtime")
        yield {
            **{name: getattr(self, name) for name in asked},
            **columns_of({name: self.metrics[name] for name in (*known, *further)}),
            **{"roofline_ms": self.roofline_ms, "in_domain": self.in_domain},
            "fits": None if self.fits is None else self.fits.fits,
        }

    def view(self) -> View:
        """Every metric with its interval and grade, the breakdowns, and the limits."""
        names = [name for name in MAIN if name in self.metrics or name in self.missing]
        names += [name for name in self.metrics if name not in MAIN]
        rows = metric_rows(self.content, names, bounds=True)
        headings = ("", "estimate", self.content.interval_heading, "bound", "trust", "why")
        lines = [*refusals(self.content.limit_details), *parts_lines(self.content)]
        lines += fit_lines(self.content)
        if any(e.low is not None and e.coverage is None for e in self.metrics.values()):
            lines.append(NOT_CALIBRATED)
        title = f"{self.model} on {self.device} ({self.setting()})"
        return View(title, headings, rows, (*lines, GRADES), self.limits)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw where the time goes, by operator where asked with `explain`, else by class.

        Raises:
            InputError: the answer has no parts.
            MissingExtra: matplotlib is not installed.
        """
        from forerun.service.python.plots import attribution, parts

        if self.attribution is not None:
            return attribution(self.attribution, f"{self.model} on {self.device}", ax)
        return parts(self.breakdown_ms, f"{self.model} on {self.device}", ax)


def metric_rows(out: PredictionOut, names: Iterable[str], *, bounds: bool) -> list[list[str]]:
    """Each metric with its value, interval, bound where wanted, grade and reason."""
    rows = []
    for name in names:
        own, bound = out.metrics.get(name), out.roofline.get(name)
        known = None if own is None else Estimate.of(own)
        rows.append(estimate_row(name, known, out.missing.get(name, "")))
        if bounds:
            rows[-1].insert(3, "" if bound is None else text_of(name, bound))
    return rows


def parts_lines(out: PredictionOut) -> Iterator[str]:
    """Sentences about what takes the time, and what takes the memory."""
    total = sum(out.breakdown_ms.values())
    if total:
        by_size = sorted(out.breakdown_ms.items(), key=lambda item: -item[1])
        shares = (f"{op} {100 * ms / total:.0f} %" for op, ms in by_size
                  if ms > LEAST_SHARE * total)  # fmt: skip
        yield f"where the time goes: {', '.join(shares)}"
    if out.breakdown_mib:
        held = ", ".join(f"{part} {mib:,.0f}" for part, mib in out.breakdown_mib.items())
        yield f"what takes memory, MiB: {held}"


def fit_lines(out: PredictionOut) -> list[str]:
    """A sentence about whether the memory suffices, where that is known."""
    return [] if out.fits is None else [f"fits: {out.fits}"]


@dataclass(frozen=True)
class Answers(Viewed, Sequence[Answer]):
    """The answers for one workload on several devices, in the order asked.

    Attributes:
        answers: one per device.
    """

    answers: tuple[Answer, ...]

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int | str) -> Answer: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Answer, ...]: ...

    def __getitem__(self, index: int | str | slice) -> Answer | tuple[Answer, ...]:
        """The answer at a position, or that of a device by its name.

        Raises:
            KeyError: no answer is about a device of that name.
        """
        if not isinstance(index, str):
            return self.answers[index]
        for answer in self.answers:
            if answer.device == index:
                return answer
        raise KeyError(index)

    def to_dict(self) -> dict[str, Any]:
        """The answers as plain dictionaries, under `answers` as the command line gives them."""
        return {"answers": [answer.to_dict() for answer in self.answers]}

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per device."""
        for answer in self.answers:
            yield from answer.records()

    def view(self) -> View:
        """One row per device, with time, bound, memory, power and energy."""
        first = self.answers[0]
        headings, rows = side_by_side([answer.content for answer in self.answers], bounds=True)
        title = f"{first.model} ({first.setting()})"
        return View(title, headings, rows, (GRADES,), self.limits)

    @property
    def limits(self) -> tuple[str, ...]:
        """Each limit once, with the devices to which it applies where these are not all."""
        said = ((answer.device, limit) for answer in self.answers for limit in answer.limits)
        return tuple(on_devices(said, len(self.answers)))

    def plot(self, ax: "Axes | None" = None, metric: str = "latency_ms") -> "Axes":
        """Draw a metric by device, as bars with intervals; the roofline bound is a line.

        Raises:
            InputError: no answer has the metric.
            MissingExtra: matplotlib is not installed.
        """
        from forerun.service.python.plots import intervals

        labels = {answer.device: answer.metrics.get(metric) for answer in self.answers}
        bounds = {answer.device: answer.roofline_ms for answer in self.answers}
        title = f"{self.answers[0].model} ({self.answers[0].setting()})"
        return intervals(labels, metric, title, bounds if metric == "latency_ms" else {}, ax)


def _sample(out: PredictionOut) -> Estimate | None:
    energy = out.power and out.power.energy_per_sample_j
    return Estimate.of(energy) if energy else None


def grades(answer: PredictionOut) -> str:
    """Grades of the main metrics in their order, `-` for a metric without one."""
    found = [own.grade if (own := answer.metrics.get(name)) else None for name in MAIN]
    return "".join(grade or "-" for grade in found) if any(found) else ""


def side_by_side(
    answers: Sequence[PredictionOut], *, bounds: bool
) -> tuple[Sequence[str], list[list[str]]]:
    """Headings, and a row for each device: time, memory, power and energy with their grades."""
    rows = []
    for answer in answers:
        latency = answer.metrics.get("latency_ms")
        time, *others = (
            own.text() if (own := answer.metrics.get(name)) else "not known" for name in MAIN
        )
        bound = answer.roofline.get("latency_ms")
        least = "" if bound is None else text_of("latency_ms", bound)
        fit = answer.fits.word() if answer.fits is not None else "not known"
        row = [answer.device.name, time, latency.interval_text() if latency else ""]
        rows.append([*row, *([least] if bounds else []), others[0], fit, *others[1:]])
        rows[-1].append(grades(answer))
    headings = ("device", "latency", answers[0].interval_heading, *(["bound"] if bounds else []))
    return (*headings, "memory", "fits", "power", "energy", "trust"), rows


def on_devices(said: Iterable[tuple[str, str]], count: int) -> Iterator[str]:
    """Each sentence once, with the devices of which it is said where these are not all.

    Args:
        said: name of a device, and a sentence about it.
        count: number of devices.
    """
    held: dict[str, list[str]] = {}
    for device, sentence in said:
        held.setdefault(sentence, []).append(device)
    for sentence, names in held.items():
        yield sentence if len(names) == count else f"{sentence} (on {', '.join(names)})"


Unanswered = tuple[str, int, str, str]
"""Name of the device, batch size, precision, and the reason why there is no answer."""


@dataclass(frozen=True)
class Comparison(Viewed):
    """The answers of a grid of devices, batch sizes and precisions.

    Attributes:
        answers: one for each combination that can be answered.
        unanswered: the other combinations, each with its reason.
    """

    answers: tuple[Answer, ...]
    unanswered: tuple[Unanswered, ...] = ()

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def best(self, metric: str = "latency_ms", per_sample: bool = True) -> Answer | None:
        """The answer with the smallest value of a metric; None where none has the metric.

        Args:
            metric: name of the metric.
            per_sample: whether the value of a run is divided by its samples.
        """
        known = [answer for answer in self.answers if metric in answer.metrics]
        samples = {id(a): (a.batch_size or 1) if per_sample else 1 for a in known}
        return min(known, key=lambda a: a.metrics[metric].value / samples[id(a)], default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists: the answers, and the reasons of the rest."""
        names = ("device", "batch_size", "precision", "reason")
        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "unanswered": [dict(zip(names, row, strict=True)) for row in self.unanswered],
        }

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per answer."""
        for answer in self.answers:
            yield from answer.records()

    def view(self) -> View:
        """One row per answer."""
        interval = self.answers[0].content.interval_heading if self.answers else "interval"
        headings = ("device", "batch", "precision", "latency", interval, "a sample")
        rows = []
        for answer in self.answers:
            latency, memory = answer.latency_ms, answer.peak_memory_mib
            energy = answer.energy_j
            each = latency.value / (answer.batch_size or 1) if latency else None
            rows.append(
                [
                    answer.device,
                    str(answer.batch_size or ""),
                    answer.precision or "",
                    latency.text() if latency else "not known",
                    latency.interval_text() if latency else "",
                    text_of("latency_ms", each),
                    memory.text() if memory else "not known",
                    answer.fits.word() if answer.fits is not None else "not known",
                    energy.text() if energy else "not known",
                    grades(answer.content),
                ]
            )
        lines = [f"{d}, batch {size}, {form}: {why}" for d, size, form, why in self.unanswered]
        title = self.answers[0].model if self.answers else "no combination can be answered"
        return View(title, (*headings, "memory", "fits", "energy", "trust"), rows, lines)

    def plot(self, ax: "Axes | None" = None, metric: str = "latency_ms") -> "Axes":
        """Draw a metric as a heat map of devices over batch sizes and precisions.

        Raises:
            InputError: no answer has the metric.
            MissingExtra: matplotlib is not installed.
        """
        from forerun.service.python.plots import heat_map

        cells = {
            (a.device, _setting(a)): a.metrics[metric].value
            for a in self.answers
            if metric in a.metrics
        }
        rows = list(dict.fromkeys(answer.device for answer in self.answers))
        columns = list(dict.fromkeys(map(_setting, self.answers)))
        values = [[cells.get((row, column), nan) for column in columns] for row in rows]
        title = self.answers[0].model if self.answers else ""
        return heat_map(values, rows, columns, metric, title, ax)


def _setting(answer: Answer) -> str:
    return f"{answer.batch_size}, {answer.precision}"
