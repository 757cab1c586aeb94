"""What the stored observations say: live errors of the answers, and changes, by slice."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import expm1, floor, log2
from threading import Lock
from typing import Any, Final

import numpy as np

from forerun.service.adaptation.predictor_in_use import FOLDER
from forerun.service.answers.observing import log_ratios
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.measurements import (
    AlarmOut,
    ChangeOut,
    DriftOut,
    LiveErrorOut,
    SliceOut,
)
from forerun.service.settings import Settings
from forerun.service.stores.devices import devices_of
from forerun.service.stores.measurement_sets import AdaptationStore, MeasurementSet
from forerun.service.stores.places import place_of
from forerun.training.monitoring.changes import Change
from forerun.training.monitoring.slices import (
    ObservedRows,
    SliceReport,
    epochs_of,
    plainest,
    slice_reports,
)

ALL: Final = "all"
"""In place of a version: the answers of every one."""
UNKNOWN: Final = ""
UNVERSIONED: Final = ("version", "cuda", "driver")
"""Fields of the software whose changes are found like any other, because they may be the cause."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """One metric of an observation: the ratio, and all that it is grouped by.

    Attributes:
        time: when it was stored, seconds since 1970.
        log_ratio, inside: as in `ObservedRows`.
        answer, version: what was answered, and by which predictor.
        question: hash of the workload and its software.
        workload: the same, for workloads of nearly the same sizes.
        facts: kind, family and precision; empty text for none.
    """

    time: float
    log_ratio: float
    inside: float
    answer: float
    version: str
    question: int
    workload: int
    facts: tuple[str, str, str]

    @property
    def base(self) -> str:
        """Version of the predictors that answered, without the measurements of users."""
        return self.version.partition("+")[0]


@dataclass(frozen=True, slots=True)
class _OfVersion:
    """What the observations of a device say of the answers of one version."""

    rows: int
    slices: tuple[SliceOut, ...]
    alarms: tuple[AlarmOut, ...]


@dataclass(frozen=True, slots=True)
class _OfDevice:
    """What the observations of a device say, as long as the same ones are stored.

    Attributes:
        names: names of the sets.
        rows: number of observations.
        versions: version of the predictors -> what is said of its answers; the one that answered
            the newest observation comes last.
    """

    names: tuple[str, ...]
    rows: int
    versions: Mapping[str, _OfVersion]


class Drift:
    """Reports of the stored observations; several threads may use it.

    What was read and computed of a device is kept until its observations change.

    Args:
        store: the store of measurements.
        in_use: gives the versions of the predictors that answer now. Where no observation of a
            device has an answer of one of them, the version that answered the newest one counts as
            such.
    """

    def __init__(
        self, store: AdaptationStore, in_use: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._store, self._in_use = store, in_use
        self._lock = Lock()
        self._sets: dict[str, tuple[Mapping[str, _Compared], ...]] = {}
        self._devices: dict[str, _OfDevice] = {}
        self._stamp = -1

    def report(self, device: str | None = None, version: str | None = None) -> DriftOut:
        """Live errors and changes of all devices, or of one.

        Args:
            device: name of the device; None for all.
            version: version of the predictors whose answers are scored; `ALL` for every one, None
                for those in use.
        """
        with self._lock:
            if not self.is_current():
                self._refresh()
            return self._joined(device, version)

    def is_current(self) -> bool:
        """Whether the last report is of all observations that are stored."""
        nothing = not self._devices and not self._store.observed()
        return nothing or self._store.is_unchanged(self._stamp, "observe")

    def last(self) -> DriftOut:
        """The report as it was computed last, which takes no time; empty before the first."""
        return self._joined(None, None)

    def _joined(self, device: str | None, version: str | None) -> DriftOut:
        chosen = {name: own for name, own in self._devices.items() if device in (None, name)}
        in_use = frozenset(self._in_use())
        parts = [part for own in chosen.values() for part in _reported_parts(own, version, in_use)]
        counts: Counter[str] = Counter()
        for own in chosen.values():
            counts.update({name: part.rows for name, part in own.versions.items() if name})
        return DriftOut(
            observations={name: own.rows for name, own in chosen.items()},
            versions=dict(counts),
            alarms=[alarm for part in parts for alarm in part.alarms],
            slices=[each for part in parts for each in part.slices],
        )

    def _refresh(self) -> None:
        stamp, observed = self._store.stamp("observe"), self._store.observed()
        stored = {name for names in observed.values() for name in names}
        self._sets = {name: own for name, own in self._sets.items() if name in stored}
        self._devices = {
            name: self._of_device(name, tuple(names)) for name, names in observed.items()
        }
        self._stamp = stamp

    def _of_device(self, device: str, names: tuple[str, ...]) -> _OfDevice:
        known = self._devices.get(device)
        if known is not None and known.names == names:
            return known
        rows = [row for name in names for row in self._read(name)]
        newest_first = (own.base for row in reversed(rows) for own in row.values())
        versions = reversed(dict.fromkeys(newest_first))
        return _OfDevice(
            names, len(rows), {version: _of_version(device, version, rows) for version in versions}
        )

    def _read(self, name: str) -> tuple[Mapping[str, _Compared], ...]:
        if name not in self._sets:
            stored = self._store.read(name, "observe")
            # A set that another process removed meanwhile is missing from the next list of names.
            self._sets[name] = () if stored is None else _compared(stored)
        return self._sets[name]


def drift_here(
    settings: Settings,
    device: str | None = None,
    version: str | None = None,
    in_use: Collection[str] = (),
) -> DriftOut:
    """The report of this user's observations, for a process that reports once.

    Args:
        settings: the folder of measurements and of devices.
        device: name, title or alias of a device; None for all.
        version: as in `Drift.report`.
        in_use: versions of the predictors in use.

    Raises:
        UnknownDevice: no device has that name.
    """
    name = None if device is None else devices_of(settings).get(device).name
    store = AdaptationStore(place_of(settings) / FOLDER)
    return Drift(store, lambda: in_use).report(name, version)


def _reported_parts(
    own: _OfDevice, version: str | None, in_use: frozenset[str]
) -> Iterator[_OfVersion]:
    """What is reported of a device; answers of versions that are not known always are."""
    newest = list(own.versions)[-1:]
    wanted = {version} if version is not None else (in_use & own.versions.keys()) or {*newest}
    for name, part in own.versions.items():
        if version == ALL or name == UNKNOWN or name in wanted:
            yield part


def _of_version(device: str, version: str, rows: Sequence[Mapping[str, _Compared]]) -> _OfVersion:
    """What the observations of a device say of the answers of one version, by metric."""
    slices: list[SliceOut] = []
    alarms: list[AlarmOut] = []
    answered = [{m: own for m, own in row.items() if own.base == version} for row in rows]
    for metric in dict.fromkeys(metric for row in answered for metric in row):
        numbers = [number for number, row in enumerate(answered) if metric in row]
        found = _OfMetric(device, metric, numbers, [answered[number][metric] for number in numbers])
        slices += found.slices()
        alarms += found.alarms()
    return _OfVersion(sum(map(bool, answered)), tuple(slices), tuple(alarms))


class _OfMetric:
    """The observations of one metric of a device."""

    def __init__(
        self, device: str, metric: str, numbers: Sequence[int], own: Sequence[_Compared]
    ) -> None:
        self._device, self._metric, self._numbers, self._own = device, metric, numbers, own
        codes = {workload: n for n, workload in enumerate(dict.fromkeys(o.workload for o in own))}
        kinds, families, precisions = (
            np.array(column, dtype=np.str_) for column in zip(*(o.facts for o in own), strict=True)
        )
        self._rows = ObservedRows(
            np.array([each.log_ratio for each in own]),
            np.array([each.inside for each in own]),
            np.array([codes[each.workload] for each in own], dtype=np.int64),
            epochs_of(
                [each.version for each in own],
                [each.question for each in own],
                np.array([each.answer for each in own]),
            ),
            {"kind": kinds, "family": families, "precision": precisions},
        )
        self._reports = slice_reports(self._rows)

    def slices(self) -> list[SliceOut]:
        """Each slice."""
        return [self._slice(report) for report in self._reports]

    def alarms(self) -> list[AlarmOut]:
        """Each change that lasts, once."""
        found = []
        for report in plainest(self._rows, self._reports):
            assert report.alarm is not None
            change = self._change(report, report.alarm)
            found.append(AlarmOut(message=self._message(report, change), slice=self._slice(report)))
        return found

    def _slice(self, report: SliceReport) -> SliceOut:
        facts = {name: report.slice.get(name) for name in ("kind", "family", "precision")}
        return SliceOut(
            metric=self._metric,
            device=self._device,
            version=self._own[0].base or None,
            **facts,
            rows=len(report.positions),
            live=LiveErrorOut(**asdict(report.live)),
            changes=[self._change(report, change) for change in report.changes],
            alarm=report.alarm is not None,
        )

    def _change(self, report: SliceReport, change: Change) -> ChangeOut:
        start, noticed = np.searchsorted(report.positions, (change.start, change.noticed))
        return ChangeOut(
            since=datetime.fromtimestamp(self._own[change.start].time, UTC),
            observation=self._numbers[change.start] + 1,
            noticed=datetime.fromtimestamp(self._own[change.noticed].time, UTC),
            after=int(noticed - start) + 1,
            percent=100 * expm1(change.shift),
            low_percent=100 * expm1(change.low),
            high_percent=100 * expm1(change.high),
        )

    def _common(self, report: SliceReport) -> dict[str, str]:
        """Properties that all rows of a slice share, whether or not the slice fixes them."""
        found = {
            n: set(column[report.positions].tolist()) for n, column in self._rows.facts.items()
        }
        return {name: max(values) for name, values in found.items() if len(values) == 1}

    def _message(self, report: SliceReport, change: ChangeOut) -> str:
        """The alarm in words, such as "latency_ms of networks on t4 rose by 15 % ..."."""
        low, high = sorted((abs(change.low_percent), abs(change.high_percent)))
        rose = "rose" if change.percent > 0 else "fell"
        return (
            f"{self._metric} of {_workloads(self._common(report))} on {self._device} {rose} by "
            f"{abs(change.percent):.0f} % ({low:.0f} to {high:.0f}) against the answers since "
            f"observation {change.observation:,} of {self._numbers[-1] + 1:,}, "
            f"{change.since:%Y-%m-%d %H:%M} UTC"
        )


def _workloads(fixed: Mapping[str, str]) -> str:
    """The workloads of a slice in words, such as `convolutional networks in fp16`."""
    names = {"kernel": "operators", "network": "networks", "llm_deployment": "deployments"}
    kind = names.get(fixed.get("kind", ""), "workloads")
    family, precision = fixed.get("family"), fixed.get("precision")
    words = (family, kind, f"in {precision}" if precision else "")
    return " ".join(word for word in words if word) if fixed else "all workloads"


def _compared(stored: MeasurementSet) -> tuple[Mapping[str, _Compared], ...]:
    """The metrics with an answer of each observation of a set."""
    time, found = stored.time.timestamp(), []
    for row, family in zip(stored.rows, stored.families, strict=True):
        question, workload = _keys(row)
        facts = (row.workload.kind, family, getattr(row.workload, "precision", ""))
        own = {}
        for metric, (ratio, inside) in log_ratios(row).items():
            answer = (row.answer or {})[metric]
            version = answer.version or ""
            own[metric] = _Compared(
                time, ratio, inside, answer.value, version, question, workload, facts
            )
        found.append(own)
    return tuple(found)


def _keys(row: MeasuredRow) -> tuple[int, int]:
    """Hashes of the workload and its software, exact and with sizes as powers of two."""
    plain = {
        "workload": row.workload.model_dump(mode="json", exclude_none=True),
        "software": row.software.model_dump(mode="json", exclude=set(UNVERSIONED)),
    }
    exact, coarse = (json.dumps(form, sort_keys=True) for form in (plain, _coarse(plain)))
    return hash(exact), hash(coarse)


def _coarse(content: Any) -> Any:
    """Plain data with the base-2 logarithm of every number, rounded down, in its place."""
    if isinstance(content, dict):
        return {name: _coarse(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_coarse(value) for value in content]
    if isinstance(content, bool) or not isinstance(content, int | float) or content <= 0:
        return content
    return floor(log2(content))
