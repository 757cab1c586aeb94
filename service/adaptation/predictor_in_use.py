"""The predictor in use: the loaded predictor, adapted to all measurements that users gave."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.errors import CannotStore, InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, OperatorWorkload
from forerun.features.deadline import within
from forerun.models.adaptation.black_box import BlackBoxes
from forerun.models.answers.served_models import InUse, subjects_measured
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.predictor import Predictor
from forerun.service.adaptation.held_out import HeldOut, held_out, key_of
from forerun.service.adaptation.released_measurements import released_measurements
from forerun.service.log import log
from forerun.service.schemas.measured_rows import (
    NAMES,
    MeasuredRow,
    as_measurements,
    check_values,
    expected,
    names_of,
    queries_of,
)
from forerun.service.schemas.measurements import AdaptationOut, ErrorOut
from forerun.service.schemas.possible_runs import check_possible
from forerun.service.schemas.workloads import workload_in
from forerun.service.settings import Settings
from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import (
    AdaptationStore,
    AlreadyStored,
    MeasurementSet,
    RepeatableRequest,
)
from forerun.service.stores.places import Place, place_of


@dataclass(frozen=True, slots=True)
class AdaptationResult:
    """The result of adapting to a set of measurements.

    Attributes:
        kept: the set as it was stored.
        rows: number of measurements of the device in use, including this set.
        errors: errors before and after adaptation, on held-out rows.
        version: version of the predictor that answers from now on.
    """

    kept: MeasurementSet
    rows: int
    errors: HeldOut
    version: str

    def out(self) -> AdaptationOut:
        """The result as it is answered over HTTP."""
        return AdaptationOut.filled(
            self.errors,
            set=self.kept.id,
            device=self.kept.device,
            rows=len(self.kept.rows),
            rows_in_use=self.rows,
            errors={n: ErrorOut.filled(error) for n, error in self.errors.metrics.items()},
            version=self.version,
        )


class RepeatedRows(InputError):
    """The same measurements were given before and are in use."""

    status = 409

    def __init__(self, device: str, made: str, rows: int) -> None:
        super().__init__(
            f"These {rows} measurements of {device} are in use already, as set {made}; nothing was "
            f"stored. `forerun adapt --device {device} --rollback` undoes the newest set."
        )


def kept_row(row: MeasuredRow, query: Query) -> MeasuredRow:
    """The row as it is stored: with its graph replaced by the digest."""
    if not isinstance(query.workload, OperatorWorkload):
        return row
    return row.model_copy(update={"workload": workload_in(query.run)})


def check_new(
    rows: Sequence[MeasuredRow],
    live: Sequence[MeasurementSet],
    request: RepeatableRequest | None = None,
) -> None:
    """Refuse rows of a set in use: held out, they would be predicted from themselves.

    Args:
        rows: the rows as they would be stored.
        live: the sets of the device that are in use.
        request: the request that brings them, where it may be repeated.

    Raises:
        AlreadyStored: the same request stored that set, in another process and just now.
        RepeatedRows: names the set.
    """
    for stored in live:
        if stored.rows == tuple(rows):
            if request is not None and stored.request == request:
                raise AlreadyStored(stored)
            raise RepeatedRows(stored.device, stored.id, len(rows))


def adapted(base: Predictor, rows: Mapping[Device, Measurements]) -> tuple[Predictor, list[Device]]:
    """The predictor adapted to all devices, except to rows and devices that it cannot use.

    Returns:
        The adapted predictor, and the devices whose rows it used.
    """
    usable = {device: part.take(_answered(base, part)) for device, part in rows.items()}
    usable = {device: part for device, part in usable.items() if len(part)}
    try:
        return _adapted_to(base, usable.values()), list(usable)
    except Exception:
        # After `swap`, the new predictor may fail on rows of one device; the others stay adapted.
        usable = {device: part for device, part in usable.items() if _learns(base, device, part)}
        return _adapted_to(base, usable.values()), list(usable)


def _answered(base: Predictor, rows: Measurements) -> NDArray[np.bool_]:
    """Whether the predictor answers each of n rows, as a mask of shape (n,)."""
    on_sheets = BlackBoxes().learn(rows)[1]
    return np.array([base.answers(query) for query in on_sheets.queries], dtype=np.bool_)


def _adapted_to(base: Predictor, parts: Iterable[Measurements]) -> Predictor:
    rows = joined(parts)
    return base if rows is None else base.adapt(rows)


def _learns(base: Predictor, device: Device, rows: Measurements) -> bool:
    try:
        base.adapt(rows)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
        log().error("measurements are left out", device=device.name, why=why)
        return False
    return True


FOLDER = "measurements"


class Adaptation:
    """Adapts a predictor whenever this or another process adds or rolls back measurements.

    Args:
        base: the predictor as it was loaded.
        place: place of the measurements and of the graphs that they need.
        devices: spec sheets; a changed sheet triggers a new adaptation.
        graph_named: digest -> graph, for graphs that a measurement names.
        graphs_kept: largest number of stored graphs of measurements.
    """

    def __init__(
        self,
        base: LoadedPredictor,
        place: Place,
        devices: DeviceStore,
        graph_named: Callable[[str], OperatorGraph],
        graphs_kept: int,
    ) -> None:
        self.store = AdaptationStore(place)
        self._devices, self._graph_named, self._base = devices, graph_named, base
        self._place, self._graphs_kept = place, graphs_kept
        self._graphs = GraphStore(place / "graphs", graphs_kept)
        self._lock = Lock()
        self._stamp, self._catalog = -1, devices.catalog
        self._measured: dict[str, tuple[Device, Measurements]] = {}
        self._inputs: object = None
        self._in_use = InUse(base)
        self._released = released_measurements(base.support)

    @property
    def base(self) -> Predictor:
        """The predictor as it was loaded, without any measurement."""
        return self._base.predictor

    @property
    def loaded(self) -> LoadedPredictor:
        """The predictor as it was loaded, with its provenance."""
        return self._base

    @property
    def base_version(self) -> str:
        """The version of the predictor as it was loaded."""
        return self._base.version

    @property
    def version(self) -> str:
        """The version of the predictor that answered last."""
        return self._in_use.loaded.version

    def held(self) -> InUse | None:
        """The predictor in use; None if the measurements or sheets changed since it was adapted."""
        in_use = self._in_use
        return in_use if self._is_current() else None

    def current(self) -> InUse:
        """The predictor in use, adapted again if the measurements or sheets changed.

        While the database is away, and what changed cannot be read, it is the one before.
        """
        if not self._is_current():
            # All later questions use the result, so it does not end with the first one's deadline.
            with self._lock, within(None), suppress(CannotStore):
                if not self._is_current():
                    self._refresh()
        return self._in_use

    def with_base(self, base: LoadedPredictor) -> "Adaptation":
        """Another predictor, adapted to the same measurements."""
        return Adaptation(base, self._place, self._devices, self._graph_named, self._graphs_kept)

    def swap(self, base: LoadedPredictor) -> None:
        """Adapt another predictor in place of this one."""
        with self._lock:
            self._base, self._inputs = base, None
            self._released = released_measurements(base.support)
            self._refresh()

    def learn(
        self,
        name: str,
        rows: Sequence[MeasuredRow],
        budget_s: float = np.inf,
        names: Sequence[str] | None = None,
        request: RepeatableRequest | None = None,
    ) -> AdaptationResult:
        """Store measurements of a device and adapt the predictor to them.

        Args:
            name: name of the device.
            rows: the measurements.
            budget_s: time for the cross-validation of the adaptation, seconds.
            names: a name per row for messages.
            request: the request, where it may be repeated.

        Raises:
            AlreadyStored: the same request stored the rows before.
            ReusedKey: a request of the same key and of other content stored rows before.
            UnknownDevice: no device has that name.
            StoreFull: the store has no room for the rows.
            RepeatedRows: the same rows are in use already.
            InputError: a row is invalid, or no predictor can learn from it; the message names it.
            DiskFull, CannotStore: the rows could not be written; nothing was stored.
        """
        device = self._devices.get(name)
        earlier_set = self.store.before(device.name, request)
        if earlier_set is not None:
            raise AlreadyStored(earlier_set)
        check_values(rows, names)
        queries = queries_of(rows, device, self.graph, names)
        measured = as_measurements(rows, queries)
        # A device without a sheet is scored with the sheet that is estimated from these rows.
        on_sheets = BlackBoxes().learn(measured)[1]
        expected(on_sheets, self._base.predictor, names)
        check_possible(on_sheets, names or names_of(on_sheets.queries))
        self.store.check_room(device.name, len(rows))
        kept = [kept_row(row, query) for row, query in zip(rows, queries, strict=True)]
        live = self.store.live(device.name)
        check_new(kept, live, request)
        earlier = self._rows_of(device, live)
        new_set = self.store.new(device.name, kept, request)
        self._measured[new_set.id] = device, measured
        # Adapting comes first, so that the change of predictors under the lock takes no time.
        start = time.perf_counter()
        change = self._changed((*self._live(), new_set))
        took_s = time.perf_counter() - start
        base = WholeAnswers(InUse(self._base), NAMES)
        before = base.predict(on_sheets.queries)
        errors = held_out(base, measured, before, earlier, budget_s, took_s)
        self.keep_graphs(queries)
        in_use = change[0]
        result = AdaptationResult(
            new_set, in_use.rows.get(device, 0), errors, in_use.loaded.version
        )
        stored = new_set.model_copy(update={"answer": result.out().model_dump_json()})
        self._commit(change, lambda: self.store.put(stored))
        self.current()
        return result

    def worth(self, name: str) -> HeldOut | None:
        """Cross-validated errors on a device's measurements in use; None where there are none."""
        measured = self.rows_of(name)
        if measured is None:
            return None
        base = WholeAnswers(InUse(self._base), NAMES)
        on_sheets = BlackBoxes().learn(measured)[1]
        return held_out(base, measured, base.predict(on_sheets.queries))

    def undo(self, name: str, wanted: str | None = None) -> MeasurementSet:
        """Roll back a set of a device, by default the newest in use; repeating it has no effect.

        Args:
            name: name of the device.
            wanted: id of the set; None for the newest in use.

        Raises:
            UnknownDevice, UnknownSet: there is no device or set of that name.
        """
        undone = self.store.get(self._devices.get(name).name, wanted)
        if undone.source == "observe":
            self.store.undo(undone)
            return undone.model_copy(update={"undone": True})
        rest = tuple(s for s in self._live() if s.id != undone.id)
        self._commit(self._changed(rest), lambda: self.store.undo(undone))
        return undone.model_copy(update={"undone": True})

    def rows_of(self, name: str) -> Measurements | None:
        """The measurements of a device that are in use; None where there are none."""
        device = self._devices.get(name)
        return self._rows_of(device, self.store.live(device.name))

    def adapted_to(self, sets: Sequence[MeasurementSet]) -> InUse:
        """The predictor as it was loaded, adapted to these sets and to no others."""
        return self._adapt(self._base, sets, self._sheets(sets))

    def measured(self, sets: Sequence[MeasurementSet]) -> Measurements | None:
        """The rows of sets of one device, with their queries; None where no row can be used."""
        sheets = self._sheets(sets)
        return self._rows_of(next(iter(sheets.values())), sets) if sheets else None

    def released(self) -> tuple[MeasurementSet, ...]:
        """The sets that the predictor as it was loaded comes with."""
        return self._released.sets

    def _live(self) -> tuple[MeasurementSet, ...]:
        """The sets in use: those of the release, unless they are stored here, and those here."""
        stored = {made.id for made in self.store.sets()}
        released = (made for made in self._released.sets if made.id not in stored)
        return *released, *self.store.live()

    def _is_current(self) -> bool:
        return self.store.is_unchanged(self._stamp) and self._devices.is_current(self._catalog)

    def _changed(self, live: Sequence[MeasurementSet]) -> tuple[InUse, object]:
        """The predictor adapted to these sets, and the identity of all its inputs."""
        base, sheets = self._base, self._sheets(live)
        return self._adapt(base, live, sheets), _inputs(base, live, sheets)

    def _commit(self, change: tuple[InUse, object], write: Callable[[], None]) -> None:
        with self._lock:
            write()
            self._in_use, self._inputs = change
            # Meanwhile another process may have added a set, or `swap` may have changed the base.
            self._stamp = -1

    def _refresh(self) -> None:
        stamp, catalog = self.store.stamp(), self._devices.catalog
        live = self._live()
        sheets = self._sheets(live)
        inputs = _inputs(self._base, live, sheets)
        if inputs != self._inputs:
            self._in_use, self._inputs = self._adapt(self._base, live, sheets), inputs
        self._stamp, self._catalog = stamp, catalog

    def _sheets(self, live: Sequence[MeasurementSet]) -> dict[str, Device]:
        """Device name -> its current spec sheet."""
        sheets = {}
        for name in sorted({s.device for s in live}):
            try:
                sheets[name] = self._devices.get(name)
            except InputError as error:
                log().error("measurements are left out", device=name, why=str(error))
        return sheets

    def _adapt(
        self, base: LoadedPredictor, live: Sequence[MeasurementSet], sheets: Mapping[str, Device]
    ) -> InUse:
        """The base predictor, adapted to all devices with usable rows."""
        rows = {}
        for device in sheets.values():
            measured = self._rows_of(device, [s for s in live if s.device == device.name])
            if measured is not None:
                rows[device] = measured
        predictor, devices = adapted(base.predictor, rows)
        if not devices:
            return InUse(base)
        inputs = _inputs(base, [s for s in live if sheets.get(s.device) in devices], sheets)
        version = f"{base.version}+{hashlib.sha256(repr(inputs[1:]).encode()).hexdigest()[:8]}"
        loaded = replace(base, predictor=predictor, version=version)
        counts = {device: len(rows[device]) for device in devices}
        return InUse(
            loaded, counts, {device: subjects_measured(rows[device]) for device in devices}
        )

    def _rows_of(self, device: Device, sets: Sequence[MeasurementSet]) -> Measurements | None:
        for measurement_set in sets:
            known, _ = self._measured.get(measurement_set.id, (None, None))
            if known != device:
                read = self._read(measurement_set, device)
                self._measured[measurement_set.id] = device, read
        total = joined(self._measured[own.id][1] for own in sets)
        return distinct(total) if total is not None and len(total) else None

    def _read(self, measurement_set: MeasurementSet, device: Device) -> Measurements:
        """The rows of a set; rows whose graph no longer exists are logged and left out."""
        rows, queries = [], []
        for row in measurement_set.rows:
            try:
                queries += queries_of([row], device, self.graph)
                rows.append(row)
            except CannotStore:
                raise  # the database is away, and its graph may be there later
            except (InputError, ValueError, LookupError, TypeError) as error:
                why = str(error)[:500]
                log().error("a measurement is left out", set=measurement_set.id, why=why)
        return as_measurements(rows, queries)

    def keep_graphs(self, queries: Iterable[Query]) -> None:
        """Store the graphs of networks with the measurements, which need them from then on.

        Raises:
            StoreFull, DiskFull, CannotStore: as `GraphStore.put`.
        """
        for query in queries:
            if isinstance(query.workload, Network):
                self._graphs.put(query.workload.graph)

    def graph(self, digest: str) -> OperatorGraph:
        """The graph of a measurement; the uploaded graph replaces a damaged copy.

        Raises:
            UnknownGraph: neither the measurements nor the uploads have it.
        """
        try:
            return self._released.graphs.get(digest) or self._graphs.get(digest)
        except UnknownGraph:
            graph = self._graph_named(digest)
            with suppress(CannotStore):
                self._graphs.put(graph)
            return graph


def joined(parts: Iterable[Measurements]) -> Measurements | None:
    """All rows together; None without any part."""
    several = list(parts)
    return sum(several[1:], several[0]) if several else None


def distinct(rows: Measurements) -> Measurements:
    """The rows without duplicates, which have equal queries and equal values of all metrics.

    A measurement that was sent twice counts once: two runs of one workload hardly ever agree in
    every digit.
    """
    first: dict[object, int] = {}
    for index, query in enumerate(rows.queries):
        values = tuple(float(np.nan_to_num(v[index], nan=-1.0)) for v in rows.values.values())
        first.setdefault((key_of(query), query.device.name, values), index)
    return rows if len(first) == len(rows) else rows.take(sorted(first.values()))


def _inputs(
    base: LoadedPredictor, live: Sequence[MeasurementSet], sheets: Mapping[str, Device]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The identity of all inputs of an adaptation: base version, set ids, and spec sheets."""
    named = {s.device for s in live}
    ids = tuple(f"{s.device}.{s.id}" for s in live if s.device in sheets)
    return base.version, ids, tuple(d.model_dump_json() for n, d in sheets.items() if n in named)


def adaptation_of(
    settings: Settings,
    base: LoadedPredictor,
    devices: DeviceStore,
    graph_named: Callable[[str], OperatorGraph],
) -> Adaptation:
    """Adaptation to the measurements in this user's folder."""
    place = place_of(settings) / FOLDER
    return Adaptation(base, place, devices, graph_named, settings.graphs_kept)


def in_use_of(settings: Settings, base: LoadedPredictor, devices: DeviceStore) -> InUse:
    """The adapted predictor, for a process that answers once; without measurements, the base."""
    if not Records.of_texts(place_of(settings) / FOLDER).is_used() and not base.support:
        return InUse(base)
    return adaptation_of(settings, base, devices, _no_graph).current()


def _no_graph(digest: str) -> OperatorGraph:
    raise UnknownGraph(digest)
