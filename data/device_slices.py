"""Slices of a GPU (MIG) as devices of their own."""

import re
from typing import Final

from forerun.data.spec_sheet import Device

PROFILE: Final = re.compile(r"(?:\d+c[.-])?(?P<units>[1-7])g[.-](?P<gigabytes>\d+)gb(?:\+\S+)?")
"""A profile of a slice: compute instances, compute slices and memory."""
SLICES: Final = 8
"""Memory of a GPU is divided into eight slices; of its compute units, about an eighth is one."""
STATED_OVER_SLICES: Final = (0.75, 1.25)
"""Memory that names of profiles state, in gigabytes, over that of the slices: 5 of 40 GB is exact,
and 6 of 24 GB two slices, 12 of 94 GB one."""
WITH_SLICES: Final = re.compile(
    r"(a30|a100|a800|h20|h100|h200|h800|gh200|b200|b300|gb200|gb300|rtx-pro-6000)(-.+)?"
)
"""Names of GPUs that can be divided (NVIDIA, "Multi-Instance GPU User Guide", supported GPUs)."""
_NAME: Final = re.compile(r"(?P<device>.+?)[ -]mig[ -](?P<profile>\S+)", re.IGNORECASE)


def device_and_profile(name: str) -> tuple[str, str] | None:
    """The name of a GPU and the profile of its slice; None for a name without a slice.

    >>> device_and_profile("a100-sxm-80gb-mig-1g-10gb")
    ('a100-sxm-80gb', '1g-10gb')
    """
    found = _NAME.fullmatch(name.strip())
    return None if found is None else (found["device"], found["profile"].lower())


def slice_of(device: Device, profile: str) -> Device | None:
    """A slice of a GPU as a device, without power; None for a profile that it does not have.

    No link joins slices (NVIDIA, "Multi-Instance GPU User Guide", application considerations).

    Bandwidth, cache and memory are in proportion to the memory of the profile, in eighths; compute
    units and arithmetic in proportion to its compute slices.

    Args:
        device: the whole GPU.
        profile: such as 1g.10gb or 1c.3g.40gb+me.
    """
    found = PROFILE.fullmatch(profile)
    if found is None or not WITH_SLICES.fullmatch(device.name):
        return None
    if device.memory_gib is None or device.memory_bandwidth_gbs is None:
        return None
    units = int(found["units"]) / SLICES
    stated = int(found["gigabytes"]) / device.memory_gib
    memory = min(max(round(SLICES * stated), 1), SLICES) / SLICES
    if not STATED_OVER_SLICES[0] <= stated / memory <= STATED_OVER_SLICES[1]:
        return None
    return device.model_copy(
        update={
            "name": f"{device.name}-mig-{found['units']}g-{found['gigabytes']}gb",
            "title": f"{device.title} MIG {found['units']}g.{found['gigabytes']}gb",
            "aliases": (),
            "memory_gib": memory * device.memory_gib,
            "memory_bandwidth_gbs": memory * device.memory_bandwidth_gbs,
            "peak_tflops": {name: units * peak for name, peak in device.peak_tflops.items()},
            "fp32_matrix_tflops": _scaled(device.fp32_matrix_tflops, units),
            "compute_units": device.compute_units and max(round(units * device.compute_units), 1),
            "l2_mib": _scaled(device.l2_mib, memory),
            "node_devices": 1,
            "tdp_w": None,
            "idle_w": None,
            "sources": {},
            "caveats": (*device.caveats, f"figures are those of {device.name} in proportion"),
            "origin": "registered",
        }
    )


def _scaled(figure: float | None, share: float) -> float | None:
    return None if figure is None else figure * share
