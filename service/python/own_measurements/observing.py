"""Compare the predictor's answers with measurements, and report whether they drift."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forerun.service.answers.adapting import observe_file
from forerun.service.answers.drift import drift_here
from forerun.service.answers.observing import summary_of
from forerun.service.loading import adaptation_here, versions_at_hand
from forerun.service.python.own_measurements.measured_rows import Rows, file_of
from forerun.service.python.session import session
from forerun.service.python.view import View, Viewed
from forerun.service.schemas.measurements import DriftOut, LiveErrorOut, SliceOut

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
        rows = [[name, *_cells(error)] for name, error in self.errors.items()]
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

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per slice; errors and coverage in percent."""
        for own in self.report.slices:
            known = own.model_dump(exclude={"live", "changes"})
            yield {**known, **{f"live_{n}": v for n, v in own.live.model_dump().items()}}

    def view(self) -> View:
        """One row per slice, and the alarms."""
        rows = [
            [own.metric, own.device, _slice(own), *_cells(own.live)] for own in self.report.slices
        ]
        lines = list(self.alarms) or ["no lasting change of 5 % or more was found"]
        kept = sum(self.report.observations.values())
        headings = ("metric", "device", "slice", *HEADINGS)
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
    opens = partial(adaptation_here, session().settings)
    folder = None if graphs is None else Path(graphs)
    with TemporaryDirectory(prefix="forerun-") as scratch:
        done = observe_file(opens, device, file_of(measurements, Path(scratch)), folder)
    out = summary_of(done.observed.kept)
    return Observations(
        out.device, out.rows, out.judged, done.left_out, out.errors, out.set, done.observed.is_new
    )


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
    report = drift_here(settings, device, version, versions_at_hand(settings))
    return Drift(tuple(alarm.message for alarm in report.alarms), report)


def _slice(own: SliceOut) -> str:
    given = (own.kind, own.family, own.precision)
    return " ".join(value for value in given if value) or "all"


def _cells(error: LiveErrorOut) -> list[str]:
    held = "" if error.coverage_90 is None else f"{error.coverage_90:.0f} %"
    return [str(error.rows), f"{error.mape:.1f} %", f"{error.bias:+.3f}", held]
