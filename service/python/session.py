"""What every question of a process shares: settings, devices, and the predictor in use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.service.loading import adaptation_here
from forerun.service.settings import Settings
from forerun.service.stores.device_sheets import read_sheet
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore, graphs_of

if TYPE_CHECKING:
    from forerun.models.answers.served_models import InUse
    from forerun.service.adaptation.predictor_in_use import Adaptation

DeviceLike = str | PathLike[str] | Device
"""A device by its name, by the path of its spec sheet (.yaml, .json), or as the sheet itself."""

SHEETS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Session:
    """The settings of the environment with what they select.

    Attributes:
        settings: settings from FORERUN_* variables.
        adaptation: the predictor, adapted to this user's measurements.
        devices: spec sheets of the catalogue and registered ones.
        graphs: uploaded graphs by digest.
    """

    settings: Settings
    adaptation: "Adaptation"
    devices: DeviceStore
    graphs: GraphStore

    @property
    def in_use(self) -> "InUse":
        """The predictor that answers, adapted again where measurements changed."""
        return self.adaptation.current()

    def device(self, given: DeviceLike) -> Device:
        """The device of a name, of a spec sheet's path, or the sheet itself.

        Raises:
            UnknownDevice: no device has that name.
            BadSheet: the file is no valid spec sheet.
            InputError: a list of devices.
        """
        if isinstance(given, Device):
            return given
        if not isinstance(given, str | PathLike):
            raise InputError(f"device: one device is taken here, not {given!r:.80}; ask for each.")
        if isinstance(given, PathLike) or Path(given).suffix.lower() in SHEETS:
            return read_sheet(Path(given), None)
        return self.devices.get(given)

    def several(self, given: DeviceLike | Sequence[DeviceLike] | None) -> list[Device]:
        """The devices of a name or of a list, without duplicates; the whole catalogue when None.

        Names in one text may be separated by commas, as on the command line.

        Raises:
            InputError: the list is empty, or as in `device`.
        """
        if given is None:
            return list(self.devices.catalog)
        return list(dict.fromkeys(map(self.device, listed(given))))


def session() -> Session:
    """The session of the current environment; it is made once for equal settings.

    Raises:
        BadSetting: a FORERUN_* variable holds an invalid value.
        BadArtifact: the predictor is damaged.
    """
    return session_of(Settings.load())


@lru_cache(maxsize=4)
def session_of(settings: Settings) -> Session:
    """What settings select; it is made once for equal settings.

    Raises:
        BadArtifact: the predictor is damaged.
    """
    adaptation, devices = adaptation_here(settings)
    return Session(settings, adaptation, devices, graphs_of(settings))


def listed(given: DeviceLike | Sequence[DeviceLike]) -> list[DeviceLike]:
    """The devices of a list, or of names separated by commas.

    Raises:
        InputError: the list is empty.
    """
    if isinstance(given, str):
        return [*given.split(",")]
    if not isinstance(given, PathLike | Device | Iterable):
        raise InputError(f"device: give a name, a spec sheet or a list of them, not {given!r:.80}.")
    several: list[DeviceLike] = [given] if isinstance(given, PathLike | Device) else list(given)
    if not several:
        raise InputError("device: the list is empty; `forerun.devices()` lists the names.")
    return several


def is_one(given: DeviceLike | Sequence[DeviceLike]) -> bool:
    """Whether a single device is given, not a list nor names separated by commas."""
    if isinstance(given, str):
        return "," not in given
    return isinstance(given, PathLike | Device)
