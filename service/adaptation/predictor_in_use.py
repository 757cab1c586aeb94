"""The predictor in use: the one that was loaded, adapted on all measurements that users gave."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.adaptation.black_box import BlackBoxes
from forerun.models.artifact.loading import LoadedPredictor
from forerun.models.predictor import Predictor
from forerun.service.adaptation.held_out import HeldOut, held_out, key_of
from forerun.service.log import log
from forerun.service.schemas.measured_rows import (
    MeasuredRow,
    as_measurements,
    check_values,
    expected,
    queries_of,
)
from forerun.service.schemas.workloads import workload_in
from forerun.service.settings import Settings
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import AdaptationStore, MeasurementSet

FOLDER = "measurements"


@dataclass(frozen=True, slots=True)
class InUse:
    """A predictor that answers.

    Attributes:
        loaded: its version says on which measurements it was adapted.
        rows: device -> measurements of it that were learnt from.
    """

    loaded: LoadedPredictor
    rows: Mapping[Device, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Learnt:
    """What came of measurements.

    Attributes:
        kept: the set that was kept.
        rows: measurements of the device in use, with these.
        errors: before and after.
        version: of the predictor that answers from now on.
    """

    kept: MeasurementSet
    rows: int
    errors: HeldOut
    version: str


class Adaptation:
    """Adapts a predictor whenever a set is added or undone, by this process or another.

    Args:
        base: the predictor as it was loaded.
        folder: where measurements are, with the graphs that they need.
        devices: spec sheets; a sheet that changes is adapted anew.
        graph_named: digest -> graph that a measurement may name.
        graphs_kept: most graphs of measurements.
    """

    def __init__(
        self,
        base: LoadedPredictor,
        folder: Path,
        devices: DeviceStore,
        graph_named: Callable[[str], OperatorGraph],
        graphs_kept: int,
    ) -> None:
        self.store = AdaptationStore(folder)
        self._devices, self._graph_named, self._base = devices, graph_named, base
        self._graphs = GraphStore(folder / "graphs", graphs_kept)
        self._lock = Lock()
        self._stamp, self._catalog = -1, devices.catalog
        self._measured: dict[str, tuple[Device, Measurements]] = {}
        self._made_of: object = None
        self._in_use = InUse(base)

    def held(self) -> InUse | None:
        """The predictor in use if nothing changed since it was made."""
        in_use = self._in_use
        return in_use if self._is_current() else None

    def current(self) -> InUse:
        """The predictor in use, adapted anew if something changed."""
        if not self._is_current():
            with self._lock:
                if not self._is_current():
                    self._refresh()
        return self._in_use

    def swap(self, base: LoadedPredictor) -> None:
        """Adapt another predictor in place of this one."""
        with self._lock:
            self._base, self._made_of = base, None
            self._refresh()

    def learn(
        self,
        name: str,
        rows: Sequence[MeasuredRow],
        budget_s: float = np.inf,
        names: Sequence[str] | None = None,
    ) -> Learnt:
        """Keep measurements of a device and answer with them from now on.

        Args:
            name: of the device.
            rows: what was measured.
            budget_s: time that judging them may take.
            names: what messages call the rows.

        Raises:
            UnknownDevice: nothing has that name.
            StoreFull: there is no room for them.
            InputError: a row is wrong, or nothing can learn from it; it is named.
            OSError: the disk refuses; the measurements were not kept.
        """
        device = self._devices.get(name)
        check_values(rows, names)
        queries = queries_of(rows, device, self._graph, names)
        measured = as_measurements(rows, queries)
        # A black box is judged on the sheet that these very rows give it.
        on_sheets = BlackBoxes().learn(measured)[1]
        before = expected(on_sheets, self._base.predictor, names)
        self.store.check_room(device.name, len(rows))
        earlier = self._rows_of(device, self.store.live(device.name))
        kept = [_kept(row, query) for row, query in zip(rows, queries, strict=True)]
        made = self.store.new(device.name, kept)
        self._measured[made.id] = device, measured
        # Adapted first, so that nobody waits for it between the old answers and the new.
        start = time.perf_counter()
        change = self._changed((*self.store.live(), made))
        took_s = time.perf_counter() - start
        errors = held_out(self._base.predictor, measured, before, earlier, budget_s, took_s)
        for query in queries:
            if query.run.kind == "network":
                self._graphs.put(query.run.graph)
        self._commit(change, lambda: self.store.put(made))
        in_use = self.current()
        return Learnt(made, in_use.rows.get(device, 0), errors, in_use.loaded.version)

    def worth(self, name: str) -> HeldOut | None:
        """Errors on a device's measurements in use, each held out; None where there are none."""
        measured = self.rows_of(name)
        if measured is None:
            return None
        base = self._base.predictor
        on_sheets = BlackBoxes().learn(measured)[1]
        return held_out(base, measured, base.predict(on_sheets.queries))

    def undo(self, name: str, wanted: str | None = None) -> MeasurementSet:
        """Roll back a set of a device, its newest in use when none is named; twice is once.

        Raises:
            UnknownDevice, UnknownSet: there is none of that name.
        """
        found = self.store.get(self._devices.get(name).name, wanted)
        rest = tuple(s for s in self.store.live() if s.id != found.id)
        self._commit(self._changed(rest), lambda: self.store.undo(found))
        return replace(found, undone=True)

    def rows_of(self, name: str) -> Measurements | None:
        """Measurements of a device in use; None where there are none."""
        device = self._devices.get(name)
        return self._rows_of(device, self.store.live(device.name))

    def _is_current(self) -> bool:
        return self._stamp == self.store.stamp() >= 0 and self._devices.is_current(self._catalog)

    def _changed(self, live: Sequence[MeasurementSet]) -> tuple[InUse, object]:
        """What will answer when these are the sets in use, and all that it depends on."""
        base, sheets = self._base, self._sheets(live)
        return self._made(base, live, sheets), _content(base, live, sheets)

    def _commit(self, change: tuple[InUse, object], write: Callable[[], None]) -> None:
        with self._lock:
            write()
            self._in_use, self._made_of = change
            # Another process may have added a set meanwhile, or another predictor come.
            self._stamp = -1

    def _refresh(self) -> None:
        stamp, catalog = self.store.stamp(), self._devices.catalog
        live = self.store.live()
        sheets = self._sheets(live)
        content = _content(self._base, live, sheets)
        if content != self._made_of:
            self._in_use, self._made_of = self._made(self._base, live, sheets), content
        self._stamp, self._catalog = stamp, catalog

    def _sheets(self, live: Sequence[MeasurementSet]) -> dict[str, Device]:
        """Device name -> its sheet as it is now."""
        found = {}
        for name in sorted({s.device for s in live}):
            try:
                found[name] = self._devices.get(name)
            except InputError as error:
                log().error("measurements are left out", device=name, why=str(error))
        return found

    def _made(
        self, base: LoadedPredictor, live: Sequence[MeasurementSet], sheets: Mapping[str, Device]
    ) -> InUse:
        rows = {}
        for device in sheets.values():
            found = self._rows_of(device, [s for s in live if s.device == device.name])
            if found is not None:
                rows[device] = found
        adapted, learnt = _adapted(base.predictor, rows)
        if not learnt:
            return InUse(base)
        content = _content(base, [s for s in live if sheets.get(s.device) in learnt], sheets)
        version = f"{base.version}+{hashlib.sha256(repr(content[1:]).encode()).hexdigest()[:8]}"
        loaded = replace(base, predictor=adapted, version=version)
        return InUse(loaded, {device: len(rows[device]) for device in learnt})

    def _rows_of(self, device: Device, sets: Sequence[MeasurementSet]) -> Measurements | None:
        total: Measurements | None = None
        for one in sets:
            held = self._measured.get(one.id)
            if held is None or held[0] != device:
                held = device, self._read(one, device)
                self._measured[one.id] = held
            total = held[1] if total is None else total + held[1]
        return distinct(total) if total is not None and len(total) else None

    def _read(self, one: MeasurementSet, device: Device) -> Measurements:
        """A set's rows; those whose graph is gone are left out and logged."""
        rows, queries = [], []
        for row in one.rows:
            try:
                queries += queries_of([row], device, self._graph)
                rows.append(row)
            except (InputError, ValueError, LookupError, TypeError) as error:
                log().error("a measurement is left out", set=one.id, why=str(error)[:500])
        return as_measurements(rows, queries)

    def _graph(self, digest: str) -> OperatorGraph:
        try:
            return self._graphs.get(digest)
        except UnknownGraph:
            return self._graph_named(digest)


def distinct(rows: Measurements) -> Measurements:
    """The rows without those that repeat another's question and all its values.

    The same measurement sent twice counts once; two runs of one workload hardly ever agree in
    every digit.
    """
    first: dict[object, int] = {}
    for place, query in enumerate(rows.queries):
        values = tuple(float(np.nan_to_num(v[place], nan=-1.0)) for v in rows.values.values())
        first.setdefault((key_of(query), query.device.name, values), place)
    return rows if len(first) == len(rows) else rows.take(sorted(first.values()))


def _kept(row: MeasuredRow, query: Query) -> MeasuredRow:
    """The row with its graph by digest."""
    return row.model_copy(update={"workload": workload_in(query.run)})


def _content(
    base: LoadedPredictor, live: Sequence[MeasurementSet], sheets: Mapping[str, Device]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """All that the predictor in use depends on."""
    named = {s.device for s in live}
    ids = tuple(f"{s.device}.{s.id}" for s in live if s.device in sheets)
    return base.version, ids, tuple(d.model_dump_json() for n, d in sheets.items() if n in named)


def _adapted(
    base: Predictor, rows: Mapping[Device, Measurements]
) -> tuple[Predictor, list[Device]]:
    """The predictor adapted to all devices, but those whose rows it cannot learn from."""
    taken = {device: found.take(_answered(base, found)) for device, found in rows.items()}
    taken = {device: found for device, found in taken.items() if len(found)}
    try:
        return _adapted_to(base, taken.values()), list(taken)
    except Exception:
        # A predictor put in place of another may stumble over rows of one device.
        taken = {device: found for device, found in taken.items() if _learns(base, device, found)}
        return _adapted_to(base, taken.values()), list(taken)


def _answered(base: Predictor, rows: Measurements) -> NDArray[np.bool_]:
    on_sheets = BlackBoxes().learn(rows)[1]
    return np.array([base.answers(query) for query in on_sheets.queries], dtype=np.bool_)


def _adapted_to(base: Predictor, parts: Iterable[Measurements]) -> Predictor:
    total: Measurements | None = None
    for part in parts:
        total = part if total is None else total + part
    return base if total is None else base.adapt(total)


def _learns(base: Predictor, device: Device, rows: Measurements) -> bool:
    try:
        base.adapt(rows)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
        log().error("measurements are left out", device=device.name, why=why)
        return False
    return True


def adaptation_of(
    settings: Settings,
    base: LoadedPredictor,
    devices: DeviceStore,
    graph_named: Callable[[str], OperatorGraph],
) -> Adaptation:
    """Adaptation on what is measured in this user's folder."""
    folder = settings.home / FOLDER
    return Adaptation(base, folder, devices, graph_named, settings.graphs_kept)


def in_use_of(settings: Settings, base: LoadedPredictor, devices: DeviceStore) -> InUse:
    """The adapted predictor, for a process that answers once; touches no folder without need."""
    if not (settings.home / FOLDER).is_dir():
        return InUse(base)
    return adaptation_of(settings, base, devices, _no_graph).current()


def _no_graph(digest: str) -> OperatorGraph:
    raise UnknownGraph(digest)
