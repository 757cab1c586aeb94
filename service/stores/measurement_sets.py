"""Measurements that users gave, as immutable sets that are added and rolled back."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict

from forerun.data.errors import InputError
from forerun.data.file_store import SUFFIX
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.stores.places import Place, records_in
from forerun.service.stores.problems import StillInUse, StoreFull, log_damage

MOST_SETS = 10_000
MOST_ROWS_OF_A_DEVICE = 2_000
"""Each adaptation uses all rows of a device; with more rows, train a predictor on them instead."""

MOMENT = timedelta(microseconds=1)
UNDONE = ".undone"


class UnknownSet(InputError):
    """The device has no such set of measurements."""

    slug, status = "unknown-set", 404

    def __init__(self, device: str, wanted: str | None) -> None:
        which = "set of measurements" if wanted is None else f"set {wanted!r:.80}"
        super().__init__(f"{device} has no {which} in use; `forerun adapt --list` shows all.")


@dataclass(frozen=True, slots=True)
class MeasurementSet:
    """Measurements that were given together.

    Attributes:
        id: identifier; identifiers sort by time.
        device: name of the device.
        time: time at which it was stored, UTC.
        rows: the measurements.
        undone: whether it was rolled back.
    """

    id: str
    device: str
    time: datetime
    rows: tuple[MeasuredRow, ...]
    undone: bool = False


class _File(BaseModel):
    """The content of the file of a set."""

    model_config = ConfigDict(extra="forbid")

    format: str = "forerun.measurements/1"
    id: str
    device: str
    time: AwareDatetime
    rows: tuple[MeasuredRow, ...]


class AdaptationStore:
    """Sets of measurements by device; several threads and processes may use one folder.

    The file of a set never changes, and rolling it back adds an empty marker file. The names in the
    folder therefore describe its whole state.

    Args:
        place: folder with at most two files per set, which the first set creates, or its like in a
            database.
    """

    def __init__(self, place: Place) -> None:
        self._name = place.name
        self._files = records_in(place, _encoded, _decoded, log_damage)

    def stamp(self) -> int:
        """A stamp that changes when any process changes the sets; -1 right after a change."""
        return self._files.stamp()

    def is_unchanged(self, stamp: int) -> bool:
        """Whether no process changed the sets since `stamp()` returned this stamp."""
        return self._files.is_unchanged(stamp)

    def sets(self, device: str | None = None) -> tuple[MeasurementSet, ...]:
        """All sets, or those of a device, the oldest first.

        A set that cannot be read is logged and left out; its file remains.
        """
        names = self._files.names()
        sets = [
            replace(stored, undone=_file(stored, UNDONE) in names)
            for stored in self._files.values().values()
            if device in (None, stored.device)
        ]
        return tuple(sorted(sets, key=lambda s: (s.id, s.device)))

    def live(self, device: str | None = None) -> tuple[MeasurementSet, ...]:
        """The sets that were not rolled back."""
        return tuple(s for s in self.sets(device) if not s.undone)

    def get(self, device: str, wanted: str | None = None) -> MeasurementSet:
        """A set of a device, by default the newest in use.

        Raises:
            UnknownSet: the device has no such set.
        """
        sets = self.live(device) if wanted is None else self.sets(device)
        matches = [s for s in sets if wanted in (None, s.id)]
        if not matches:
            raise UnknownSet(device, wanted)
        return matches[-1]

    def new(self, device: str, rows: Sequence[MeasuredRow]) -> MeasurementSet:
        """A set, not stored yet, that sorts after all others even if the clock was set back."""
        now = max([datetime.now(UTC), *(s.time + MOMENT for s in self.sets())])
        # Two processes may create a set at the same moment.
        made = f"{now:%Y%m%dT%H%M%S%f}-{secrets.token_hex(3)}"
        return MeasurementSet(made, device, now, tuple(rows))

    def put(self, made: MeasurementSet) -> None:
        """Store a set on disk; its graphs must be stored already.

        Raises:
            StoreFull: there are too many sets, or too many rows of this device.
            DiskFull, CannotStore: the set could not be written; nothing was stored.
        """
        with self._files.writing():
            self.check_room(made.device, len(made.rows))
            self._files.put(_file(made), made)

    def undo(self, undone: MeasurementSet) -> None:
        """Roll back a set on disk; repeating it has no effect.

        Raises:
            DiskFull, CannotStore: the mark could not be written.
        """
        self._files.mark(_file(undone, UNDONE))

    def check_device_unused(self, device: str) -> None:
        """Refuse the deletion of a device that has sets in use.

        Raises:
            StillInUse: it has; the message says what to roll back.
        """
        live = self.live(device)
        if live:
            raise StillInUse(
                f"{device} has {len(live)} sets of measurements in use; roll them back first, with "
                f"DELETE /v1/devices/{device}/measurements/{live[-1].id} for the newest."
            )

    def check_graph_unused(self, digest: str) -> None:
        """Refuse the deletion of a graph that rows of sets in use name.

        Raises:
            StillInUse: they do; the message says what to roll back.
        """
        for used in self.live():
            if any(getattr(row.workload, "graph", None) == digest for row in used.rows):
                raise StillInUse(
                    f"Measurements of {used.device} were made with graph {digest}; roll them back "
                    f"first, with DELETE /v1/devices/{used.device}/measurements/{used.id}."
                )

    def check_room(self, device: str, rows: int) -> None:
        """Refuse rows for which the store has no room.

        Raises:
            StoreFull: there are too many sets, or too many rows of this device.
        """
        sets = self.sets()
        if len(sets) >= MOST_SETS:
            raise StoreFull(
                f"{MOST_SETS:,} sets of measurements are kept already; delete undone ones under "
                f"{self._name}/."
            )
        held = sum(len(s.rows) for s in sets if s.device == device and not s.undone)
        if held + rows > MOST_ROWS_OF_A_DEVICE:
            raise StoreFull(
                f"{device} has {held:,} measurements; with {rows:,} more it would be over "
                f"{MOST_ROWS_OF_A_DEVICE:,}. Roll a set back, or train on them."
            )


def _file(stored: MeasurementSet, suffix: str = SUFFIX) -> str:
    return f"{stored.device}.{stored.id}{suffix}"


def _encoded(made: MeasurementSet) -> str:
    content = _File(id=made.id, device=made.device, time=made.time, rows=made.rows)
    return content.model_dump_json(exclude_none=True) + "\n"


def _decoded(name: str, content: bytes) -> MeasurementSet:
    stored = _File.model_validate_json(content)
    made = MeasurementSet(stored.id, stored.device, stored.time, stored.rows)
    if name != _file(made):
        raise ValueError("it is not what its name says")
    return made
