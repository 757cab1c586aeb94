"""Measurements that users gave, as immutable sets that are added and rolled back."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from forerun.data.errors import InputError
from forerun.service.log import log
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.stores.devices import CLOCK_STEP_NS
from forerun.service.stores.files import write_whole
from forerun.service.stores.graphs import StoreFull

MOST_SETS = 10_000
MOST_ROWS_OF_A_DEVICE = 2_000
"""Each adaptation uses all rows of a device; with more rows, train a predictor on them instead."""

MOMENT = timedelta(microseconds=1)
MADE, UNDONE = ".json", ".undone"


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
        folder: folder with at most two files per set; the first set creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, MeasurementSet | None] = {}
        self._lock = Lock()

    def stamp(self) -> int:
        """A stamp that changes when any process changes the sets; -1 right after a change."""
        try:
            stamp = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0
        # A folder that changed a moment ago may change again within the same timestamp.
        return stamp if time.time_ns() - stamp > CLOCK_STEP_NS else -1

    def sets(self, device: str | None = None) -> tuple[MeasurementSet, ...]:
        """All sets, or those of a device, the oldest first.

        A set that cannot be read is logged and left out; its file remains.
        """
        names = self._names()
        sets = [
            replace(stored, undone=name.removesuffix(MADE) + UNDONE in names)
            for name in names
            if name.endswith(MADE) and (stored := self._set(name)) is not None
        ]
        return tuple(
            sorted((s for s in sets if device in (None, s.device)), key=lambda s: (s.id, s.device))
        )

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
            OSError: the set could not be written; nothing was stored.
        """
        content = _File(id=made.id, device=made.device, time=made.time, rows=made.rows)
        with self._lock:
            self.check_room(made.device, len(made.rows))
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"{made.device}.{made.id}{MADE}"
            write_whole(self._folder / name, content.model_dump_json(exclude_none=True) + "\n")
            self._read[name] = made

    def undo(self, undone: MeasurementSet) -> None:
        """Roll back a set on disk; repeating it has no effect."""
        write_whole(self._folder / f"{undone.device}.{undone.id}{UNDONE}", "")

    def check_room(self, device: str, rows: int) -> None:
        """Refuse rows for which the store has no room.

        Raises:
            StoreFull: there are too many sets, or too many rows of this device.
        """
        sets = self.sets()
        if len(sets) >= MOST_SETS:
            raise StoreFull(
                f"{MOST_SETS:,} sets of measurements are kept already; delete undone ones under "
                f"{self._folder.name}/."
            )
        held = sum(len(s.rows) for s in sets if s.device == device and not s.undone)
        if held + rows > MOST_ROWS_OF_A_DEVICE:
            raise StoreFull(
                f"{device} has {held:,} measurements; with {rows:,} more it would be over "
                f"{MOST_ROWS_OF_A_DEVICE:,}. Roll a set back, or train on them."
            )

    def _names(self) -> frozenset[str]:
        try:
            return frozenset(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return frozenset()

    def _set(self, name: str) -> MeasurementSet | None:
        if name not in self._read:
            self._read[name] = self._parsed(name)
        return self._read[name]

    def _parsed(self, name: str) -> MeasurementSet | None:
        try:
            content = _File.model_validate_json((self._folder / name).read_bytes())
        except (OSError, ValidationError) as error:
            log().error("a set of measurements is left out", file=name, why=str(error)[:500])
            return None
        if name != f"{content.device}.{content.id}{MADE}":
            log().error("a set of measurements is not what its name says", file=name)
            return None
        return MeasurementSet(content.id, content.device, content.time, content.rows)
