"""Measure on this machine, adapt the predictor to measurements, or compare answers with them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

from forerun.data.errors import InputError
from forerun.data.lazy import pd
from forerun.service.adaptation.held_out import MetricError, without_help
from forerun.service.adaptation.predictor_in_use import AdaptationResult
from forerun.service.answers.drift import drift_here
from forerun.service.answers.observing import Observed, summary_of
from forerun.service.loading import versions_at_hand
from forerun.service.python.own_measurements.measured_file import (
    adapt_to_file,
    observe_file,
    register_for,
)
from forerun.service.python.session import session
from forerun.service.python.view import View, Viewed
from forerun.service.schemas.measurements import DriftOut, LiveErrorOut

MOST_GROUPS: Final = 5
"""Most held-out groups whose errors are shown."""
Rows: TypeAlias = "str | PathLike[str] | Sequence[Mapping[str, Any] | BaseModel] | pd.DataFrame"
"""Measurements: a file, a table, or a list as POST /v1/devices/NAME/measurements takes it."""


def file_of(measurements: Any, scratch: Path) -> Path:
    """The file of measurements; those that are no file are written into a folder first."""
    if isinstance(measurements, str | PathLike):
        return Path(measurements)
    if hasattr(measurements, "to_parquet"):
        file = scratch / "measurements.parquet"
        measurements.to_parquet(file, index=False)
        return file
    file = scratch / "measurements.json"
    plain = [
        row.model_dump(mode="json") if isinstance(row, BaseModel) else row for row in measurements
    ]
    try:
        file.write_text(json.dumps(plain), encoding="utf-8")
    except (TypeError, ValueError) as error:
        raise InputError(f"measurements: {error}.") from None
    return file


@dataclass(frozen=True)
class Adaptation(Viewed):
    """The result of adapting the predictor to measurements of a device.

    Attributes:
        device: name of the device.
        rows: measurements in this set.
        left_out: unusable rows that were given.
        rows_in_use: measurements of the device in use, including these.
        errors: metric -> errors before and after adaptation, on held-out rows.
        enough: whether further rows would lower each error by less than a percentage point.
        set_id: identifier of the stored set.
        version: version of the predictor that answers from now on.
    """

    device: str
    rows: int
    left_out: int
    rows_in_use: int
    errors: Mapping[str, MetricError]
    enough: bool
    set_id: str
    version: str

    @classmethod
    def of(cls, result: AdaptationResult, left_out: int) -> "Adaptation":
        """The result in this form."""
        kept, errors = result.kept, result.errors
        counts = (len(kept.rows), left_out, result.rows)
        return cls(
            kept.device, *counts, dict(errors.metrics), errors.enough, kept.id, result.version
        )

    def undo(self) -> None:
        """Roll back this set of measurements; repeating it has no effect.

        Raises:
            UnknownSet: the set no longer exists.
        """
        session().adaptation.undo(self.device, self.set_id)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per metric; errors in percent, intervals as the ratio of their ends."""
        names = ("rows", "mape_before", "mape_after", "width_before", "width_after")
        for metric, error in self.errors.items():
            row = {name: getattr(error, name) for name in (*names, "held_before", "held_after")}
            yield {"metric": metric, **row, "enough": error.enough, "worse": error.worse}

    def view(self) -> View:
        """One row per metric, with the errors before and after."""
        title = f"adapted to {self.rows} measurements of {self.device}"
        used = f"{self.rows_in_use} measurements of {self.device} are in use"
        return errors_view(title, self.errors, (used,))


def errors_view(title: str, errors: Mapping[str, MetricError], lines: Sequence[str] = ()) -> View:
    """One row per metric with the errors before and after, and the largest errors of groups."""
    headings = ("metric", "rows", "error before", "after", "interval before", "after")
    rows, below = [], ["interval: its high over its low, and the share of rows inside"]
    for name, e in errors.items():
        gain = "too few to say" if e.gain is None else f"gain at most {100 * e.gain:.1f} %"
        rows.append([name, *e.cells(), f"{gain}: enough" if e.enough else gain])
        worst = sorted(e.by_group.items(), key=lambda pair: -pair[1])[:MOST_GROUPS]
        if len(e.by_group) > 1:
            listed = ", ".join(f"{group} {value:.1f} %" for group, value in worst)
            below.append(f"{name}, largest errors of groups held out: {listed}")
    said = [*(below if rows else ()), *without_help(errors), *lines]
    return View(title, (*headings, "further rows"), rows, said)


@dataclass(frozen=True)
class Collected(Viewed):
    """A table of measurements of this machine.

    Attributes:
        table: path of the table.
        device: name of the device in the rows.
        rows: number of rows.
        median_spread: interquartile range over median of the repeats of the middle row; None
            without rows.
        frame: the rows.
    """

    table: Path
    device: str
    rows: int
    median_spread: float | None
    frame: "pd.DataFrame" = field(repr=False)

    def adapt(self) -> Adaptation:
        """Adapt the predictor to the table; raises as `forerun.adapt`."""
        return adapt(self.table, device=self.device)

    def to_pandas(self) -> "pd.DataFrame":
        """A copy of the rows."""
        return self.frame.copy()

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One mapping per row."""
        for record in self.frame.to_dict("records"):
            yield {str(name): value for name, value in record.items()}

    def view(self) -> View:
        """The workloads with their latencies."""
        names = [name for name in ("label", "latency_ms", "spread", "status") if name in self.frame]
        rows = [[_cell(record[name]) for name in names] for record in self.records()]
        return View(f"{self.rows} measurements of {self.device} in {self.table}", names, rows)


def adapt(
    measurements: Rows,
    *,
    device: str,
    graphs: str | PathLike[str] | None = None,
    sheet: str | PathLike[str] | None = None,
) -> Adaptation:
    """Adapt the predictor to a few measurements of a device; it answers from then on.

    Args:
        measurements: a file (.parquet, .csv or .json), a data frame with the columns of such a
            table, or a list of measurements as POST /v1/devices/NAME/measurements takes them.
        device: name of the device.
        graphs: folder of the networks' graphs; `<table>-graphs` next to a file when None.
        sheet: path of a spec sheet to register first; `auto` detects this machine's processor.

    Raises:
        UnknownDevice: no device has that name.
        InputError: a measurement is not valid, or no predictor can learn from it.
    """
    settings = session().settings
    folder = None if graphs is None else Path(graphs)
    with TemporaryDirectory(prefix="forerun-") as scratch:
        file = file_of(measurements, Path(scratch))
        if sheet is not None:
            register_for(settings, device, str(sheet), file)
        return Adaptation.of(*adapt_to_file(settings, device, file, folder))


def collect(
    output: str | PathLike[str],
    *,
    kind: Literal["cpu", "gpu"] = "cpu",
    device: str | None = None,
    quick: bool = False,
    plan: str | PathLike[str] | None = None,
    threads: int | None = None,
    budget_minutes: float | None = None,
    report: Callable[[str], None] | None = None,
) -> Collected:
    """Measure this machine's processor or GPU into a table that `adapt` reads.

    A call with the same output goes on where an earlier one stopped.

    Args:
        output: table to write, .parquet or .csv.
        kind: cpu or gpu.
        device: name of this machine in the rows; `my-cpu`, or the GPU's own name, when None.
        quick: measure reference operators and networks only, in two minutes; processors only.
        plan: measurement plan, .yaml; the standard plan of half an hour when None.
        threads: computing threads; all that this process may use when None.
        budget_minutes: time budget; that of the plan when None.
        report: called with a line about each step, such as `print`.

    Raises:
        InputError: nothing can be measured here, or options contradict each other.
    """
    from forerun.service.adaptation.collecting import (
        collect_table,
        keep_graphs_of,
        processor_collector,
    )
    from forerun.service.stores.device_sheets import nvidia_gpu, this_cpu

    table, report = Path(output), report or _silent
    if kind == "gpu" and (quick or plan is not None or threads is not None):
        raise InputError("quick, plan and threads are about processors; leave them out.")
    if quick and plan is not None:
        raise InputError("Give quick or plan, not both.")
    devices = session().devices
    if kind == "gpu":
        from forerun.data.collectors.latency.gpu import GpuCollector

        gpu = GpuCollector(device=device or "")
        try:
            found = collect_table(gpu, table, budget_minutes or 30.0, nvidia_gpu, devices, report)
        finally:
            # The networks in the table need graphs, also after an interruption or a lost GPU.
            if table.is_file():
                keep_graphs_of(table)
    else:
        chosen = None if plan is None else Path(plan)
        name = device or "my-cpu"
        collector, minutes = processor_collector(name, table, threads, chosen, quick=quick)
        found = collect_table(
            collector, table, budget_minutes or minutes, this_cpu, devices, report
        )
    facts = found.facts()
    return Collected(table, found.device, facts["rows"], facts["median_spread"], found.frame)


def _silent(line: str) -> None:
    """Report nothing."""


def _cell(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


HEADINGS: Final = ("rows", "error", "bias", "inside interval")


@dataclass(frozen=True)
class Observations(Viewed):
    """Observations that were stored, and how good the answers about them were.

    Attributes:
        device: name of the device.
        rows: observations in this set.
        judged: observations with an answer to a metric that was measured.
        left_out: unusable rows that were given.
        errors: metric -> errors of the answers.
        set_id: identifier of the stored set.
        is_new: whether they were stored now; False where the same ones were stored before.
    """

    device: str
    rows: int
    judged: int
    left_out: int
    errors: Mapping[str, LiveErrorOut]
    set_id: str
    is_new: bool

    @classmethod
    def of(cls, observed: Observed, left_out: int) -> "Observations":
        """The result in this form."""
        out = summary_of(observed.kept)
        counts = (out.rows, out.judged, left_out)
        return cls(out.device, *counts, out.errors, out.set, observed.is_new)

    def undo(self) -> None:
        """Take this set out of all reports; repeating it has no effect.

        Raises:
            UnknownSet: the set no longer exists.
        """
        session().adaptation.undo(self.device, self.set_id)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per metric; errors and coverage in percent."""
        for metric, error in self.errors.items():
            yield {"metric": metric, **error.model_dump()}

    def view(self) -> View:
        """One row per metric."""
        rows = [[name, str(error.rows), *error.figures()] for name, error in self.errors.items()]
        lines = [f"{self.judged} have an answer; forerun.drift() reports all observations"]
        return View(
            f"{self.rows} observations of {self.device}", ("metric", *HEADINGS), rows, lines
        )


@dataclass(frozen=True)
class Drift(Viewed):
    """How good the answers about observations were, and what changed.

    Attributes:
        alarms: each change that lasts, in words.
        report: all slices with their errors and changes, as `GET /v1/drift` answers.
    """

    alarms: tuple[str, ...]
    report: DriftOut = field(repr=False)

    @classmethod
    def of(cls, report: DriftOut) -> "Drift":
        """The report in this form."""
        return cls(tuple(alarm.message for alarm in report.alarms), report)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per slice; errors and coverage in percent."""
        for own in self.report.slices:
            known = own.model_dump(exclude={"live", "changes"})
            yield {**known, **{f"live_{n}": v for n, v in own.live.model_dump().items()}}

    def view(self) -> View:
        """One row per slice, and the alarms."""
        rows = [
            [
                *(own.metric, own.device, own.version or "", own.name(), str(own.live.rows)),
                *own.live.figures(),
                f"{own.changes[-1].percent:+.0f} %" if own.alarm else "",
            ]
            for own in self.report.slices
        ]
        lines = list(self.alarms) or ["no lasting change of 5 % or more was found"]
        kept = sum(self.report.observations.values())
        headings = ("metric", "device", "version", "slice", *HEADINGS, "changed")
        return View(f"{kept} observations", headings, rows, lines)


def observe(
    measurements: Rows, *, device: str, graphs: str | PathLike[str] | None = None
) -> Observations:
    """Store measurements of a device that answers are compared with and never adapted to.

    The same measurements are stored once.

    Args:
        measurements: as `forerun.adapt` takes them; a measurement of a list may hold `answer`, what
            was answered about it before.
        device: name of the device.
        graphs: folder of the networks' graphs; `<table>-graphs` next to a file when None.

    Raises:
        UnknownDevice: no device has that name.
        InputError: a measurement is not valid; the message names it.
    """
    settings = session().settings
    folder = None if graphs is None else Path(graphs)
    with TemporaryDirectory(prefix="forerun-") as scratch:
        done = observe_file(settings, device, file_of(measurements, Path(scratch)), folder)
    return Observations.of(*done)


def drift(device: str | None = None, version: str | None = None) -> Drift:
    """How good the answers about observations were, and what changed, by slice.

    Args:
        device: name of a device; None for all.
        version: version of the predictors whose answers are scored, `all` for every one; None for
            those in use.

    Raises:
        UnknownDevice: no device has that name.
    """
    settings = session().settings
    return Drift.of(drift_here(settings, device, version, versions_at_hand(settings)))
