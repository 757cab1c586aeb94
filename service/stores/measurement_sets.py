"""Measurements that users gave, as immutable sets that are added and rolled back.

There are two sources. The predictor adapts to sets of `adapt`; with sets of `observe`, its answers
are only compared. They are called observations.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from forerun.data.errors import InputError
from forerun.service.schemas.measured_rows import MeasuredRow, Source
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import (
    SUFFIX,
    DamagedRecord,
    Place,
    StillInUse,
    StoreFull,
    log_damage,
)

TOKEN_DIGITS = 16


class ReusedKey(InputError):
    """The key was used before, for a request of other content."""

    def __init__(self, device: str) -> None:
        super().__init__(
            f"Idempotency-Key: another request about measurements of {device} had this key; "
            "nothing was stored. Take a new key for each request, and the same only to repeat it."
        )


@dataclass(frozen=True, slots=True)
class RepeatableRequest:
    """A request that a client may repeat without its being carried out twice.

    Attributes:
        key: the client's Idempotency-Key.
        digest: hash of the content of the request.
    """

    key: str
    digest: str

    @classmethod
    def of(cls, key: str, content: Any) -> "RepeatableRequest":
        """The request of a key.

        Args:
            key: the client's Idempotency-Key.
            content: the content of the request as plain data.
        """
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return cls(key, hashlib.sha256(text.encode()).hexdigest())

    @property
    def token(self) -> str:
        """Hexadecimal digits that stand for the key in the names of files."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:TOKEN_DIGITS]


MOST_SETS = 10_000
MOST_ROWS_OF_A_DEVICE = 2_000
"""Each adaptation uses all rows of a device; with more rows, train a predictor on them instead."""
WINDOW_ROWS = 10_000
"""Observations of a device that are kept. The oldest sets leave when others arrive."""
WINDOW_SETS = 5_000
"""Sets of observations of a device that are kept; they leave in the same way."""
IN_MEMORY_ROWS = 1_000
"""Observations in memory; reports keep what they need of all of them."""

MOMENT = timedelta(microseconds=1)
UNDONE = ".undone"
OBSERVATIONS: Final = re.compile(r"([^.]+)\.(\d{8}T\d{12})-[0-9a-f]+-(\d{1,6})\.json")
"""Name of a file of observations: device, time, and number of rows."""
SOURCES: Final[tuple[Source, ...]] = ("adapt", "observe")
CLOCK: Final = "%Y%m%dT%H%M%S%f"
OBSERVED: Final = "observed"
"""Place of the observations in that of the measurements. It is another one, so that a new
observation does not make the service look for measurements to adapt to."""


class UnknownSet(InputError):
    """The device has no such set of measurements."""

    status = 404

    def __init__(self, device: str, wanted: str | None) -> None:
        which = "set of measurements" if wanted is None else f"set {wanted!r:.80}"
        super().__init__(f"{device} has no {which} in use; `forerun adapt --list` shows all.")


class MeasurementSet(BaseModel):
    """Measurements that were given together.

    Attributes:
        id: identifier; identifiers sort by time.
        device: name of the device.
        time: time at which it was stored, UTC.
        rows: the measurements; each observation has the answer that is compared with it, where one
            was given or could be.
        undone: whether it was rolled back.
        source: what the measurements are for.
        families: the family of the workload of each observation, as slices of errors name it.
        request: the request that stored it, where that may be repeated.
        answer: the answer to that request, as JSON; None for observations, from which it follows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = "forerun.measurements/1"
    id: str
    device: str
    time: AwareDatetime
    rows: tuple[MeasuredRow, ...]
    undone: bool = Field(default=False, exclude=True)
    source: Source = "adapt"
    families: tuple[str, ...] = ()
    request: RepeatableRequest | None = None
    answer: str | None = None


class AlreadyStored(Exception):
    """The same request was carried out before; nothing was stored again.

    Attributes:
        before: the set that it stored.
    """

    def __init__(self, before: MeasurementSet) -> None:
        super().__init__(before.id)
        self.before = before


class AdaptationStore:
    """Sets of measurements by device; several threads and processes may use one place.

    The record of a set never changes, and rolling it back adds an empty one that marks it. The
    names therefore describe the whole state.

    Args:
        place: where the sets are.
    """

    def __init__(self, place: Place) -> None:
        self._name = place.name
        self._files = Records(place, _encoded, _decoded, log_damage)
        self._observed = Records(
            place / OBSERVED, _encoded, _decoded, log_damage,
            weigh=lambda kept: len(kept.rows), room=IN_MEMORY_ROWS,
        )  # fmt: skip

    def stamp(self, source: Source = "adapt") -> int:
        """A stamp that changes when any process changes sets of a source.

        It is 0 while there are none.
        """
        return self._of(source).stamp()

    def is_unchanged(self, stamp: int, source: Source = "adapt") -> bool:
        """Whether no process changed the sets since `stamp()` returned this stamp."""
        return self._of(source).is_unchanged(stamp)

    def sets(
        self, device: str | None = None, source: Source = "adapt"
    ) -> tuple[MeasurementSet, ...]:
        """All sets of a source, or those of a device, the oldest first.

        A set that cannot be read is logged and left out; its file remains.
        """
        names = self._of(source).names()
        wanted = (name for name in names if device is None or name.startswith(f"{device}."))
        found = (self.read(name, source, names) for name in wanted if name.endswith(SUFFIX))
        return tuple(sorted((s for s in found if s is not None), key=lambda s: (s.id, s.device)))

    def live(
        self, device: str | None = None, source: Source = "adapt"
    ) -> tuple[MeasurementSet, ...]:
        """The sets of a source that were not rolled back."""
        return tuple(s for s in self.sets(device, source) if not s.undone)

    def observed(self) -> dict[str, list[str]]:
        """Device -> names of the files of its observations that are not rolled back, in order."""
        names = self._observed.names()
        found: dict[str, list[str]] = {}
        for name in sorted(filter(OBSERVATIONS.fullmatch, names)):
            if f"{name.removesuffix(SUFFIX)}{UNDONE}" not in names:
                found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def read(
        self, name: str, source: Source, names: frozenset[str] = frozenset()
    ) -> MeasurementSet | None:
        """The set in a file; None where it is not there or cannot be read.

        Args:
            name: name of the file.
            source: what its measurements are for.
            names: names of all files, by which the set is marked as rolled back.
        """
        with suppress(FileNotFoundError, DamagedRecord):
            stored = self._of(source).get(name)
            return stored.model_copy(update={"undone": _file(stored, UNDONE) in names})
        return None

    def get(self, device: str, wanted: str | None = None) -> MeasurementSet:
        """A set of a device, by default the newest to adapt to that is in use.

        Raises:
            UnknownSet: the device has no such set.
        """
        if wanted is None:
            found = next(reversed(self.live(device)), None)
        else:
            found = self._named(f"{device}.{wanted}{SUFFIX}")
        if found is None:
            raise UnknownSet(device, wanted)
        return found

    def new(
        self, device: str, rows: Sequence[MeasuredRow], request: RepeatableRequest | None = None
    ) -> MeasurementSet:
        """A set to adapt to, not stored yet; it sorts after all others even if the clock went back.

        Args:
            device: name of the device.
            rows: the measurements.
            request: the request, where it may be repeated.
        """
        return _after([s.time for s in self.sets()], device, rows, request)

    def new_observations(
        self,
        device: str,
        rows: Sequence[MeasuredRow],
        families: Sequence[str],
        request: RepeatableRequest | None = None,
    ) -> MeasurementSet:
        """A set of observations, not stored yet, that sorts after those of its device.

        Args:
            device: name of the device.
            rows: the observations with their answers.
            families: the family of each workload.
            request: the request, where it may be repeated.
        """
        newest = [_time_of(name) for name in self.observed().get(device, [])[-1:]]
        made = _after(newest, device, rows, request, f"-{len(rows)}")
        return made.model_copy(update={"source": "observe", "families": tuple(families)})

    def before(self, device: str, request: RepeatableRequest | None) -> MeasurementSet | None:
        """The set that the same request stored before; None where none did, or without a request.

        Raises:
            ReusedKey: a request of this key and of other content stored one.
        """
        if request is None:
            return None
        for source in SOURCES:
            names = self._of(source).names()
            for name in names:
                if name.startswith(f"{device}.") and f"-{request.token}" in name:
                    stored = self.read(name, source, names)
                    if stored is not None and stored.request is not None:
                        if stored.request != request:
                            raise ReusedKey(device)
                        return stored
        return None

    def put(self, made: MeasurementSet) -> None:
        """Store a set on disk; its graphs must be stored already.

        Observations that leave the window of the device are deleted.

        Raises:
            AlreadyStored: the same request stored a set in the meantime.
            ReusedKey: a request of the same key and of other content did.
            StoreFull: there are too many sets, or too many rows of this device.
            DiskFull, CannotStore: the set could not be written; nothing was stored.
        """
        files = self._of(made.source)
        with files.writing():
            earlier = self.before(made.device, made.request)
            if earlier is not None:
                raise AlreadyStored(earlier)
            if made.source == "adapt":
                self.check_room(made.device, len(made.rows))
            files.put(_file(made), made)
            if made.source == "observe":
                self._leave(made.device)

    def _named(self, file: str) -> MeasurementSet | None:
        """The set of either source in a file of that name; None where there is none."""
        for source in SOURCES:
            names = self._of(source).names()
            if file in names:
                return self.read(file, source, names)
        return None

    def _leave(self, device: str) -> None:
        """Delete what is no longer in the window of a device."""
        rows = sets = 0
        for name in sorted(self._observed.names(), reverse=True):
            known = OBSERVATIONS.fullmatch(name)
            if known is None or known[1] != device:
                continue
            sets, rows = sets + 1, rows + int(known[3])
            if sets > 1 and (rows > WINDOW_ROWS or sets > WINDOW_SETS):
                self._observed.delete(name)
                self._observed.delete(f"{name.removesuffix(SUFFIX)}{UNDONE}")

    def _of(self, source: Source) -> Records[MeasurementSet]:
        return self._files if source == "adapt" else self._observed

    def undo(self, undone: MeasurementSet) -> None:
        """Roll back a set on disk; repeating it has no effect.

        Raises:
            DiskFull, CannotStore: the mark could not be written.
        """
        self._of(undone.source).mark(_file(undone, UNDONE))

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


def _after(
    times: Sequence[datetime],
    device: str,
    rows: Sequence[MeasuredRow],
    request: RepeatableRequest | None,
    ending: str = "",
) -> MeasurementSet:
    """A set to adapt to that sorts after those of other times, with an ending of its identifier."""
    now = max([datetime.now(UTC), *(time + MOMENT for time in times)])
    # Two processes may create a set at the same moment.
    token = secrets.token_hex(3) if request is None else request.token
    made = f"{now:{CLOCK}}-{token}{ending}"
    return MeasurementSet(id=made, device=device, time=now, rows=tuple(rows), request=request)


def _time_of(name: str) -> datetime:
    """The time in the name of a file of observations."""
    known = OBSERVATIONS.fullmatch(name)
    assert known is not None
    return datetime.strptime(known[2], CLOCK).replace(tzinfo=UTC)


def _encoded(made: MeasurementSet) -> str:
    return made.model_dump_json(exclude_none=True) + "\n"


def _decoded(name: str, content: bytes) -> MeasurementSet:
    made = MeasurementSet.model_validate_json(content)
    if name != _file(made):
        raise ValueError("it is not what its name says")
    if made.source == "observe" and len(made.families) != len(made.rows):
        raise ValueError("it has not one family for each observation")
    return made
