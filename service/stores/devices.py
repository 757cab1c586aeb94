"""The catalogue together with spec sheets that users registered."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from threading import Lock
from typing import Literal

from forerun.data.device import Device, DeviceCatalog, DeviceKind
from forerun.data.errors import InputError
from forerun.features.caches import Recent
from forerun.service.log import log
from forerun.service.settings import Settings
from forerun.service.stores import places
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import SUFFIX

MOST_DEVICES = 1_000
NAMES_HELD = 4_096


def devices_of(settings: Settings) -> "DeviceStore":
    """The devices of the place that the settings select."""
    return DeviceStore(places.place_of(settings) / "devices")


class TakenName(InputError):
    """The catalogue holds a device of that name."""

    status = 409


def _catalog_with(registered: Iterable[Device]) -> DeviceCatalog:
    catalog = DeviceCatalog.load()
    taken = set(catalog.names())
    own = [device for device in registered if device.name not in taken]
    try:
        return DeviceCatalog((*catalog, *own))
    except InputError:
        for device in own:
            try:
                catalog = catalog.with_device(device)
            except InputError as error:
                log().error("a registered device is left out", device=device.name, why=str(error))
        return catalog


class DeviceStore:
    """The catalogue and the registered devices; it is thread-safe.

    Devices that another process registers are found at the next access, and in a database on
    another machine within two seconds.

    Args:
        place: where the registered devices are.
    """

    def __init__(self, place: places.Place) -> None:
        self._files = Records(
            place,
            encode=lambda device: device.model_dump_json(exclude_none=True),
            decode=lambda name, content: Device.model_validate_json(content),
            report=places.log_damage,
        )
        self._lock = Lock()
        self._catalog, self._seen = DeviceCatalog(()), -1
        self._refresh()

    @property
    def catalog(self) -> DeviceCatalog:
        """All current devices."""
        with self._lock:
            self._refresh()
            return self._catalog

    def is_current(self, catalog: DeviceCatalog) -> bool:
        """Whether nothing changed since `catalog` was returned."""
        with self._lock:
            return catalog is self._catalog and self._files.is_unchanged(self._seen)

    def get(self, name: str) -> Device:
        """The device of that name, title or alias.

        Raises:
            UnknownDevice: no device has that name; the message suggests similar names.
        """
        catalog = self.catalog
        device = catalog.get(name)
        with self._lock:
            if catalog is self._catalog:
                self._held.put(name, device)
        return device

    def named(self, names: AbstractSet[str]) -> dict[str, Device]:
        """Name -> device, of each name that has one; that others have none is kept too."""
        with self._lock:
            self._refresh()
            catalog, held = self._catalog, self._held
        found = {name: held.get(name) for name in names}
        for name in (name for name, own in found.items() if own is None):
            with suppress(InputError):  # of instance types with GPUs
                found[name] = catalog.find(name)
            held.put(name, found[name] or False)
        return {name: own for name, own in found.items() if own}

    def listed(self, kind: DeviceKind | None, vendor: str | None) -> list[Device]:
        """Devices of a kind and of a vendor, in any case; of all of them where None is given."""
        wanted = vendor.lower() if vendor else None
        return [
            device
            for device in self.catalog
            if kind in (None, device.kind) and wanted in (None, device.vendor.lower())
        ]

    def held(self, name: str) -> Device | None:
        """The device from the cache of names; None if it is not there or something changed."""
        with self._lock:
            return self._held.get(name) or None if self._files.is_unchanged(self._seen) else None

    def register(self, device: Device) -> Device:
        """Store a device's sheet on disk, and replace a registered one of the same name.

        Raises:
            TakenName: the catalogue holds a device of that name.
            DiskFull, CannotStore: the sheet could not be written; nothing was stored.
            StoreFull: `MOST_DEVICES` devices are registered already.
            InputError: another device has one of its names or aliases.
        """
        device = device.model_copy(update={"origin": "registered"})
        with self._files.writing():
            catalog = self.catalog
            names = {known.name: known.origin for known in catalog}
            if names.get(device.name) == "catalog":
                raise TakenName(f"{device.name} is in the catalogue; register under another name.")
            registered = sum(origin == "registered" for origin in names.values())
            if device.name not in names and registered >= MOST_DEVICES:
                raise places.StoreFull(f"{MOST_DEVICES} devices are registered already.")
            catalog.with_device(device)  # which refuses a name of another device
            self._files.put(f"{device.name}{SUFFIX}", device)
        return device

    def delete(self, name: str) -> None:
        """Delete the sheet of a registered device.

        Args:
            name: name, title or alias.

        Raises:
            UnknownDevice: no device has that name.
            TakenName: the device is not a registered one.
            CannotStore: the file could not be deleted.
        """
        device = self.catalog.get(name)
        if device.origin != "registered":
            raise TakenName(f"{device.name} is in the catalogue, which cannot be changed.")
        with self._files.writing():
            self._files.delete(f"{device.name}{SUFFIX}")

    def _refresh(self) -> None:
        if self._files.is_unchanged(self._seen):
            return
        stamp = self._files.stamp()
        self._catalog, self._seen = _catalog_with(self._files.values().values()), stamp
        self._held: Recent[str, Device | Literal[False]] = Recent(NAMES_HELD)
