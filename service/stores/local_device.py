"""The machine that measures, as a device that can be asked about."""

import re
from collections.abc import Callable

from forerun.data.collectors.system.host import cpu_model, cpu_vendor, host_memory_gib
from forerun.data.device import Device
from forerun.data.errors import UnknownDevice
from forerun.service.stores.devices import DeviceStore


def local_device(
    store: DeviceStore, name: str, make: Callable[[str], Device]
) -> tuple[Device, bool]:
    """The device of that name; registered where nothing has it.

    Args:
        store: where devices are registered.
        name: slug, title or alias.
        make: the sheet of a device that nothing knows, from its name.

    Returns:
        The device, and whether it is new.

    Raises:
        InputError: the name is no slug, or there is no room.
    """
    try:
        return store.get(name), False
    except UnknownDevice:
        return store.register(make(name)), True


def this_cpu(name: str) -> Device:
    """This machine's processor by name alone.

    Measurements estimate its figures better than a count of processors and a cache's size do, which
    a virtual machine shares with others.
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
    """A GPU that is in no catalogue: its name alone."""
    return Device(name=slug(name), title=name, vendor="nvidia", kind="gpu")


def slug(name: str) -> str:
    """A device's name from what people call it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80].strip("-") or "unnamed"
