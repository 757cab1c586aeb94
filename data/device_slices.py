"""Slices of a GPU (MIG) and shares of its memory (vGPU) as devices of their own."""

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
WITH_SHARES: Final = re.compile(r"([pvtalhb]|gb|gh)\d+.*|quadro-rtx-.*|rtx-(a|6000-ada|pro-).*")
"""Names of GPUs that NVIDIA's virtual GPU software divides ("Virtual GPU Software User Guide")."""
SHARE: Final = re.compile(r"(?P<amount>\d{1,7})(?P<unit>c|q|mib|pct)")
"""A share of the memory: gigabytes of a vGPU of the series C or Q, MiB, or percent."""
BOARDS: Final = {
    "a100": "a100-pcie-40gb",
    "a100x": "a100-sxm-40gb",
    "h100": "h100-pcie-80gb",
    "h200": "h200-nvl-141gb",
    "p100": "p100-pcie-16gb",
    "v100": "v100-pcie-16gb",
}
"""Boards in names of vGPU types that elsewhere mean another GPU (NVIDIA, "NVIDIA AI Enterprise",
vGPU types reference)."""
PART: Final = "a part of "
"""Begin of the caveat of a slice or share."""
IN_TURNS: Final = "times are those of a run while no other uses its compute units and bandwidth"
_NAME: Final = re.compile(r"(?P<device>.+?)[ -]mig[ -](?P<profile>\S+)", re.IGNORECASE)
_TYPE: Final = re.compile(
    r"(?:(?:nvidia|grid)[ -]+)*(?P<board>.+?)-(?:(?P<units>[1-7])-)?"
    r"(?P<share>(?P<gigabytes>\d+)(?:[cq]|mib|pct))(?:me)?",
    re.IGNORECASE,
)


def device_and_profile(name: str) -> tuple[str, str] | None:
    """The name of a GPU and the profile of its slice or share; None for a name without one.

    >>> device_and_profile("a100-sxm-80gb-mig-1g-10gb"), device_and_profile("NVIDIA L40S-12Q")
    (('a100-sxm-80gb', '1g-10gb'), ('L40S', '12q'))
    >>> device_and_profile("GRID A100DX-3-40C")
    ('A100DX', '3g.40gb')
    """
    if (found := _NAME.fullmatch(name.strip())) is not None:
        return found["device"], found["profile"].lower()
    if (found := _TYPE.fullmatch(name.strip())) is None:
        return None
    board = BOARDS.get(found["board"].lower(), found["board"])
    slice_ = found["units"] and f"{found['units']}g.{found['gigabytes']}gb"
    return board, slice_ or found["share"].lower()


def slice_of(device: Device, profile: str) -> Device | None:
    """A slice or a share of a GPU as a device; None for a profile that it does not have.

    No link joins slices (NVIDIA, "Multi-Instance GPU User Guide", application considerations).

    Bandwidth, cache and memory of a slice are in proportion to the memory of the profile, in
    eighths; compute units and arithmetic in proportion to its compute slices; its power is not
    known. A share has all but the memory to itself while nobody else is at work.

    Args:
        device: the whole GPU.
        profile: such as 1g.10gb or 1c.3g.40gb+me, or 12q, 4096mib or 50pct of a share.
    """
    share = SHARE.fullmatch(profile)
    figures = _sliced(device, profile) if share is None else _shared(device, share)
    if figures is None:
        return None
    said = "its figures are in proportion" if share is None else IN_TURNS
    common = {
        "aliases": (),
        "node_devices": 1,
        "sources": {},
        "caveats": (*device.caveats, f"{PART}{device.name}: {said}"),
        "origin": "registered",
    }
    return device.model_copy(update={**common, **figures})


def _shared(device: Device, share: re.Match[str]) -> dict[str, object] | None:
    whole, unit = device.memory_gib, share["unit"]
    typed = unit in "cq" and not WITH_SHARES.fullmatch(device.name)
    if whole is None or device.vendor != "nvidia" or device.kind != "gpu" or typed:
        return None
    gib = float(share["amount"]) * {"mib": 1.0 / 2**10, "pct": whole / 100.0}.get(unit, 1.0)
    name, title = f"{device.name}-{share[0]}", f"{device.title} vGPU {share[0]}"
    if not 0.0 < gib <= 1.05 * whole:
        return None
    return {"name": name, "title": title, "memory_gib": min(gib, whole)}


def _sliced(device: Device, profile: str) -> dict[str, object] | None:
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
    return {
        "name": f"{device.name}-mig-{found['units']}g-{found['gigabytes']}gb",
        "title": f"{device.title} MIG {found['units']}g.{found['gigabytes']}gb",
        "memory_gib": memory * device.memory_gib,
        "memory_bandwidth_gbs": memory * device.memory_bandwidth_gbs,
        "peak_tflops": {name: units * peak for name, peak in device.peak_tflops.items()},
        "fp32_matrix_tflops": _scaled(device.fp32_matrix_tflops, units),
        "compute_units": device.compute_units and max(round(units * device.compute_units), 1),
        "l2_mib": _scaled(device.l2_mib, memory),
        "tdp_w": None,
        "idle_w": None,
    }


def _scaled(figure: float | None, share: float) -> float | None:
    return None if figure is None else figure * share
