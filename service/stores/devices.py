"""The catalogue together with spec sheets that users registered, one JSON file per device."""

import time
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from pydantic import ValidationError

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError
from forerun.service.log import log
from forerun.service.stores.files import write_whole
from forerun.service.stores.graphs import StoreFull

MOST_DEVICES = 1_000
NAMES_HELD = 4_096
CLOCK_STEP_NS = 50_000_000
"""Longer than the resolution of file timestamps, so that two changes never share a timestamp."""


class TakenName(InputError):
    """The catalogue holds a device of that name."""

    slug, status = "taken-name", 409


def load_catalog(folder: Path) -> DeviceCatalog:
    """The catalogue together with every registered device.

    A sheet that cannot be read, or that uses the name of another device, is logged and left out, so
    that one bad file does not disable the others.
    """
    catalog = DeviceCatalog.load()
    taken = set(catalog.names())
    own = [device for device in _sheets(folder) if device.name not in taken]
    try:
        return DeviceCatalog((*catalog, *own))
    except InputError:
        for device in own:
            try:
                catalog = catalog.with_device(device)
            except InputError as error:
                log().error("a registered device is left out", device=device.name, why=str(error))
        return catalog


def _sheets(folder: Path) -> list[Device]:
    devices = []
    for path in sorted(folder.glob("*.json")):
        try:
            devices.append(Device.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError) as error:
            log().error("a spec sheet cannot be read", file=path.name, why=str(error)[:500])
    return devices


class DeviceStore:
    """The catalogue and the registered devices; it is thread-safe.

    Devices that another process registers in the same folder are found at the next access.

    Args:
        folder: folder with one JSON file per registered device; the first one creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._held: OrderedDict[str, Device] = OrderedDict()
        self._catalog, self._seen = DeviceCatalog(()), -1
        self._read()

    @property
    def catalog(self) -> DeviceCatalog:
        """All current devices."""
        with self._lock:
            if self._changed():
                self._read()
            return self._catalog

    def is_current(self, catalog: DeviceCatalog) -> bool:
        """Whether nothing changed since `catalog` was returned."""
        with self._lock:
            return catalog is self._catalog and not self._changed()

    def get(self, name: str) -> Device:
        """The device of that name, title or alias.

        Raises:
            UnknownDevice: no device has that name; the message suggests similar names.
        """
        catalog = self.catalog
        device = catalog.get(name)
        with self._lock:
            if catalog is self._catalog:
                self._held[name] = device
                if len(self._held) > NAMES_HELD:
                    self._held.popitem(last=False)
        return device

    def held(self, name: str) -> Device | None:
        """The device from the cache of names; None if it is not there or something changed."""
        with self._lock:
            return None if self._changed() else self._held.get(name)

    def register(self, device: Device) -> Device:
        """Store a device's sheet on disk, and replace a registered one of the same name.

        Raises:
            TakenName: the catalogue holds a device of that name.
            StoreFull: `MOST_DEVICES` devices are registered already.
            InputError: another device has one of its names or aliases.
        """
        device = device.model_copy(update={"origin": "registered"})
        with self._lock:
            if self._changed():
                self._read()
            names = {known.name: known.origin for known in self._catalog}
            if names.get(device.name) == "catalog":
                raise TakenName(f"{device.name} is in the catalogue; register under another name.")
            registered = sum(origin == "registered" for origin in names.values())
            if device.name not in names and registered >= MOST_DEVICES:
                raise StoreFull(f"{MOST_DEVICES} devices are registered already.")
            wider = self._catalog.with_device(device)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(
                self._folder / f"{device.name}.json", device.model_dump_json(exclude_none=True)
            )
            self._catalog = wider
            self._held.clear()
        return device

    def _stamp(self) -> int:
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _changed(self) -> bool:
        return self._stamp() != self._seen

    def _read(self) -> None:
        stamp = self._stamp()
        self._catalog = load_catalog(self._folder)
        self._held.clear()
        # A folder that changed a moment ago may change again within the same timestamp.
        self._seen = stamp if time.time_ns() - stamp > CLOCK_STEP_NS else -1
