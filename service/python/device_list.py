"""The devices that can be asked about, with the main figures of their spec sheets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, overload

from forerun.data.device import Device, DeviceKind
from forerun.data.errors import InputError, UnknownDevice
from forerun.service.python.session import session
from forerun.service.python.view import View, Viewed

FACTS = ("title", "vendor", "kind")
COLUMNS = ("memory_gib", "memory_bandwidth_gbs", "fp32_tflops", "fp16_tflops", "tdp_w", "year")


@dataclass(frozen=True)
class Devices(Viewed, Sequence[Device]):
    """Spec sheets of devices.

    Attributes:
        devices: spec sheets, in the order of the catalogue.
    """

    devices: tuple[Device, ...]

    def __len__(self) -> int:
        return len(self.devices)

    @overload
    def __getitem__(self, index: int | str) -> Device: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Device, ...]: ...

    def __getitem__(self, index: int | str | slice) -> Device | tuple[Device, ...]:
        """The device at a position, or of a name, title or alias.

        Raises:
            UnknownDevice: no device has that name.
        """
        if not isinstance(index, str):
            return self.devices[index]
        device = session().device(index)
        if device not in self.devices:
            raise UnknownDevice(index, self.names())
        return device

    def names(self) -> tuple[str, ...]:
        """Names of the devices."""
        return tuple(device.name for device in self.devices)

    def to_dict(self) -> dict[str, Any]:
        """The sheets as plain dictionaries and lists, with the fields of GET /v1/devices."""
        return {"devices": [device.model_dump(mode="json") for device in self.devices]}

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per device."""
        for device in self.devices:
            peaks = {f"{form}_tflops": device.peak_tflops.get(form) for form in ("fp32", "fp16")}
            own = {name: getattr(device, name, peaks.get(name)) for name in (*FACTS, *COLUMNS)}
            yield {"device": device.name, **own}

    def view(self) -> View:
        """One row per device."""
        headings = ("device", "kind", "GiB", "GB/s", "fp32 TFLOP/s", "fp16 TFLOP/s", "TDP W")
        rows = [
            [
                record["device"],
                record["kind"],
                *("" if record[name] is None else f"{record[name]:g}" for name in COLUMNS),
            ]
            for record in self.records()
        ]
        return View(f"{len(self)} devices", (*headings, "year"), rows)


def devices(*, kind: DeviceKind | None = None, vendor: str | None = None) -> Devices:
    """The devices that can be asked about, of the catalogue and registered ones.

    Args:
        kind: kind of device, such as gpu, cpu or npu; all when None.
        vendor: vendor in any case; all when None.

    Raises:
        InputError: there is no such kind of device.
    """
    if kind is not None and kind not in get_args(DeviceKind):
        raise InputError(f"kind {kind!r} is not one of {', '.join(get_args(DeviceKind))}.")
    return Devices(tuple(session().devices.listed(kind, vendor)))
