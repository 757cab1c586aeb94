"""The machine on which measurements run, as a registered device."""

import re
from collections.abc import Callable

from forerun.data.collectors.system.host import cpu_model, cpu_vendor, host_memory_gib
from forerun.data.device import Device
from forerun.data.errors import UnknownDevice
from forerun.service.stores.devices import DeviceStore


def local_device(
    store: DeviceStore, name: str, make: Callable[[str], Device]
) -> tuple[Device, bool]:
    """Look up a device by name, and register it if it is unknown.

    Args:
        store: the store of devices.
        name: slug, title or alias.
        make: makes the spec sheet of an unknown device from its name.

    Returns:
        The device, and whether it is new.

    Raises:
        InputError: the name is not valid, or the store is full.
    """
    try:
        return store.get(name), False
    except UnknownDevice:
        return store.register(make(name)), True


def this_cpu(name: str) -> Device:
    """This machine's processor, by name alone.

    Measurements estimate its rates better than the number of processors and the cache size do,
    which a virtual machine shares with others.
    """
    memory = host_memory_gib()
    return Device(
        name=slug(name),
        title=f"{cpu_model()} ({name})",
        vendor=cpu_vendor(),
        kind="cpu",
        memory_gib=memory,
        sources={} if memory is None else {"memory_gib": "derived: what this machine may use"},
    )


def nvidia_gpu(name: str) -> Device:
    """A GPU outside the catalogue, by name alone."""
    return Device(name=slug(name), title=name, vendor="nvidia", kind="gpu")


def slug(name: str) -> str:
    """A valid device name made from any text."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80].strip("-") or "unnamed"
