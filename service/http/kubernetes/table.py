"""A table of predictions by workload class and device, for schedulers that ask once for all pods.

The operator names the classes and devices in a file. The table changes with the file, the
predictors, and the spec sheets of its devices; its tag is a hash of all three.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from forerun import __version__
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import DeadlineExceeded, InputError, why_unreadable
from forerun.data.query import Query
from forerun.models.answers.answer import PEAK
from forerun.service.answers.question import question_about
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.advice import rank_request
from forerun.service.http.kubernetes.extender import Metadata, Pod
from forerun.service.http.kubernetes.language_models import requests_on
from forerun.service.http.kubernetes.pods import placed_by
from forerun.service.http.lanes import current_departure
from forerun.service.http.rank_requests import queries_of
from forerun.service.http.schemas import (
    CellOut,
    RowOut,
    TableOut,
    WorkloadClassesIn,
    WorkloadClassIn,
)
from forerun.service.problems import unfit
from forerun.service.schemas.answers import IntervalOut, PredictionOut, ServingOut
from forerun.service.schemas.serving import LlmEstimateIn

T = TypeVar("T")
METRICS: Final = ("latency_ms", PEAK)
ATTEMPTS: Final = 3
"""Times that a table is made while what it depends on changes."""


class NoTable(InputError):
    """No file of workload classes is set."""

    status = 404


class BadWorkloadClasses(InputError):
    """The file of workload classes cannot be used."""

    status = 503


class Table:
    """The table of a file, which is made anew when something that it depends on changed.

    Args:
        path: the file, in YAML.
        given: what was read from it last; it is read now when None.

    Raises:
        BadWorkloadClasses: it cannot be read, or does not fit its schema.
    """

    def __init__(self, path: Path, given: WorkloadClassesIn | None = None) -> None:
        self._path, self._lock = path, Lock()
        self._state: object = None
        self._catalog: DeviceCatalog | None = None
        self._tag = self._made_tag = ""
        self._content = b""
        self._given = given or read(path)

    def of_other_answers(self) -> "Table":
        """A table of the same file, for the answers of somebody else."""
        return Table(self._path, self._given)

    def check(self, answers: Answers) -> None:
        """Refuse a file with a device or a class that no answer can be about.

        Raises:
            BadWorkloadClasses: there is one; the message names the first.
        """
        try:
            devices = [answers.devices.get(name) for name in self._given.devices]
        except InputError as error:
            raise _refused(self._path, str(error)) from None
        for one in self._given.classes:
            try:
                _queries(one, devices[:1], answers)
            except InputError as error:
                raise _refused(self._path, f"the class {one.name!r:.80}: {error}") from None

    def known_tag(self, answers: Answers) -> str | None:
        """The tag; None where something changed, so that it must be made. It takes microseconds."""
        catalog = self._catalog
        if catalog is None or not answers.devices.is_current(catalog):
            return None
        return self._tag if self._now(answers) == self._state else None

    def tag(self, answers: Answers) -> str:
        """The tag of the table as it is now.

        Raises:
            BadWorkloadClasses: as the class.
        """
        with self._lock:
            now, catalog = self._now(answers), answers.devices.catalog
            if now != self._state or catalog is not self._catalog:
                self._given = read(self._path)
                devices = _devices(self._given, answers)
                sheets = (own if isinstance(own, str) else own.model_dump_json() for own in devices)
                version = answers.adaptation.version
                parts = (__version__, version, self._given.model_dump_json(), *sheets)
                self._tag = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
                self._state, self._catalog = now, catalog
            return self._tag

    def content(self, answers: Answers) -> tuple[str, bytes]:
        """The tag and the JSON of a `TableOut`, which is kept until the tag is another one.

        Raises:
            BadWorkloadClasses: as the class.
            DeadlineExceeded: the time of the request is over.
        """
        for _ in range(ATTEMPTS):
            tag = self.tag(answers)
            with self._lock:
                if tag == self._made_tag:
                    return tag, self._content
            version = answers.adaptation.current().loaded.version
            content = table_of(self._given, answers, version).model_dump_json().encode()
            if version == answers.adaptation.version and tag == self.tag(answers):
                break
        with self._lock:
            self._made_tag, self._content = tag, content
        return tag, content

    def _now(self, answers: Answers) -> object:
        """What changes with the file and the predictors."""
        try:
            facts = self._path.stat()
        except OSError as error:
            raise _unreadable(self._path, error) from None
        file = facts.st_ino, facts.st_size, facts.st_mtime_ns
        return answers.adaptation.version, file


def read(path: Path) -> WorkloadClassesIn:
    """The classes and devices that a file names.

    Raises:
        BadWorkloadClasses: it cannot be read, or does not fit its schema; the message says where.
    """
    import yaml

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        return WorkloadClassesIn.model_validate(given)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unreadable(path, error) from None
    except ValidationError as error:
        why = unfit(error.errors()).detail
        raise _refused(path, why) from None


def table_of(given: WorkloadClassesIn, answers: Answers, version: str) -> TableOut:
    """The predictions for all classes on all devices; a cell without one says why.

    Raises:
        DeadlineExceeded: the time of the request is over.
    """
    devices = _devices(given, answers)
    known = [device for device in devices if isinstance(device, Device)]
    rows = []
    for one in given.classes:
        found = iter(_cells(one, known, answers))
        cells = [
            next(found) if isinstance(device, Device) else CellOut(device=name, problem=device)
            for name, device in zip(given.devices, devices, strict=True)
        ]
        rows.append(RowOut(name=one.name, cells=cells))
    names = [
        device.name if isinstance(device, Device) else name
        for name, device in zip(given.devices, devices, strict=True)
    ]
    return TableOut(version=version, devices=names, classes=rows)


def _devices(given: WorkloadClassesIn, answers: Answers) -> list[Device | str]:
    """The devices of a file, or why there is none of a name."""
    found: list[Device | str] = []
    for name in given.devices:
        try:
            found.append(answers.devices.get(name))
        except InputError as error:
            found.append(str(error))
    return found


def _queries(
    one: WorkloadClassIn, devices: Sequence[Device], answers: Answers
) -> list[Query] | list[LlmEstimateIn]:
    """What a class asks of each device.

    Raises:
        InputError: the annotations do not fit, or name something that is not known.
    """
    placed = placed_by(Pod(Metadata(annotations=one.annotations)))
    if placed.serving is not None:
        asked = requests_on(placed.serving, one.gpus, devices)
        for each in asked[:1]:
            each.model.sizes()
        return asked
    if placed.ranking is None:
        raise BadWorkloadClasses("it names neither a workload nor a language model.")
    return queries_of(rank_request(placed.ranking, devices), answers)


def _cells(one: WorkloadClassIn, devices: Sequence[Device], answers: Answers) -> list[CellOut]:
    """The cells of a class, one for each device."""
    if not devices:
        return []
    try:
        queries = _queries(one, devices, answers)
        if isinstance(queries[0], LlmEstimateIn):
            return _listed(devices, answers.served(queries), _deployed)
        found = answers.predicted([question_about(query, METRICS) for query in queries])
    except DeadlineExceeded:
        raise
    except InputError as error:
        return [CellOut(device=device.name, problem=str(error)) for device in devices]
    samples = getattr(queries[0].workload, "batch_size", 1)
    return _listed(devices, found, lambda device, answer: _predicted(device, answer, samples))


def _listed(
    devices: Sequence[Device],
    found: Sequence[T | InputError],
    cell_of: Callable[[str, T], CellOut],
) -> list[CellOut]:
    return [
        CellOut(device=device.name, problem=str(answer))
        if isinstance(answer, InputError)
        else cell_of(device.name, answer)
        for device, answer in zip(devices, found, strict=True)
    ]


def _predicted(device: str, answer: PredictionOut, samples: int) -> CellOut:
    """The cell of a workload whose run has so many samples."""
    latency, memory = answer.metrics.get("latency_ms"), answer.metrics.get(PEAK)
    time = _interval(latency)
    return CellOut(
        device=device,
        latency_ms=time,
        throughput_per_s=None if time is None else time.over(1e3 * samples, "samples/s"),
        peak_memory_mib=_interval(memory),
        fits=None if answer.fits is None else answer.fits.fits,
        grade=None if latency is None else latency.grade,
        in_domain=answer.in_domain,
        problem=answer.missing.get("latency_ms"),
    )


def _deployed(device: str, answer: ServingOut) -> CellOut:
    """The cell of a language model; its memory has no interval."""
    latency = answer.metrics.get("request_latency_ms")
    memory = answer.deployment.memory if answer.deployment else ()
    needed = max((own.needed_mib for own in memory), default=None)
    return CellOut(
        device=device,
        latency_ms=_interval(latency),
        throughput_per_s=_interval(answer.metrics.get("requests_per_s")),
        peak_memory_mib=None
        if needed is None
        else IntervalOut(value=needed, low=None, high=None, coverage=None, unit="MiB"),
        fits=all(own.fits for own in memory) if memory else None,
        device_count=answer.device_count,
        grade=None if latency is None else latency.grade,
        in_domain=answer.in_domain,
        problem=answer.missing.get("request_latency_ms"),
    )


def _interval(own: IntervalOut | None) -> IntervalOut | None:
    """An estimate without its grade."""
    return None if own is None else IntervalOut.filled(own)


def _unreadable(path: Path, error: Exception) -> BadWorkloadClasses:
    return _refused(path, f"it cannot be read: {why_unreadable(error)}.")


def _refused(path: Path, why: str) -> BadWorkloadClasses:
    return BadWorkloadClasses(f"FORERUN_WORKLOAD_CLASSES {path}: {why}")


LONGEST_WAIT_S: Final = 60.0
LOOK_S: Final = 0.5
"""Time between two looks at what the table depends on, seconds."""
MOST_WAITING: Final = 100
"""Requests of one process that wait; further ones are answered at once."""


Run = Callable[[Callable[[], str]], Awaitable[str]]
"""Runs work on a thread, as `State.run`."""


class WatchedTable:
    """A table, and those who wait for its next one.

    Args:
        table: the table.
        stopping: set when the process ends, which ends all waits.
    """

    def __init__(self, table: Table, stopping: asyncio.Event) -> None:
        self.table, self._stopping = table, stopping
        self._waiting = 0

    def of_other_answers(self) -> "WatchedTable":
        """A table of the same file, for the answers of somebody else."""
        return WatchedTable(self.table.of_other_answers(), self._stopping)

    async def tag(self, answers: Answers, run: Run) -> str:
        """The tag of the table; work is run only where something has changed."""
        known = self.table.known_tag(answers)
        return await run(lambda: self.table.tag(answers)) if known is None else known

    async def new_tag(self, known: str | None, wait_s: float, answers: Answers, run: Run) -> str:
        """The tag, once it is none of the known ones; or the same, when the time is over.

        Args:
            known: the header `If-None-Match`; None without one.
            wait_s: longest time to wait, seconds.
            answers: what the table depends on.
            run: runs work on a thread.

        Raises:
            ClientDisconnect: the client left.
            BadWorkloadClasses, UnknownDevice: as `Table.tag`.
        """
        tag = await self.tag(answers, run)
        if not wait_s or not is_known(tag, known) or self._waiting >= MOST_WAITING:
            return tag
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._until_another(tag, answers, run)
            return await self.tag(answers, run)
        finally:
            self._waiting -= 1

    async def _until_another(self, tag: str, answers: Answers, run: Run) -> None:
        """Return once the tag is another one, or the process ends.

        Raises:
            ClientDisconnect: the client left.
        """
        departure = current_departure()
        left = None if departure is None else asyncio.ensure_future(departure.left())
        ends = asyncio.ensure_future(self._stopping.wait())
        events = {ends} if left is None else {ends, left}
        try:
            while await self.tag(answers, run) == tag and not ends.done():
                await asyncio.wait(events, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if left is not None and left.done():
                    raise ClientDisconnect
        finally:
            for event in events:
                event.cancel()


def is_known(tag: str, known: str | None) -> bool:
    """Whether a header `If-None-Match` lists a tag."""
    listed = (each.strip().removeprefix("W/") for each in (known or "").split(","))
    return any(each in ("*", f'"{tag}"') for each in listed)
