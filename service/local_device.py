"""The machine that measures, as a device that can be asked about."""

from forerun.data.collectors.host import cpu_model, cpu_vendor, last_level_cache_mib
from forerun.data.device import Device, DeviceKind
from forerun.data.errors import UnknownDevice
from forerun.service.device_store import DeviceStore

SOURCE = "told by the machine itself"


def local_device(store: DeviceStore, name: str, threads: int) -> tuple[Device, bool]:
    """The device of that name; registered as this machine's processor where nothing has it.

    Bandwidth and peaks are left open: measurements estimate them.

    Args:
        store: where devices are registered.
        name: slug.
        threads: that measure; a machine with more of them is another device.

    Returns:
        The device, and whether it is new.

    Raises:
        InputError: the name is no slug, or there is no room.
    """
    try:
        return store.get(name), False
    except UnknownDevice:
        pass
    kind: DeviceKind = "cpu"
    cache = last_level_cache_mib()
    figures = {"compute_units": threads} | ({} if cache is None else {"l2_mib": cache})
    sheet = {"name": name, "title": f"{cpu_model()} ({name})", "vendor": cpu_vendor()}
    sources = dict.fromkeys(figures, SOURCE)
    device = Device.model_validate({**sheet, "kind": kind, **figures, "sources": sources})
    return store.register(device), True
