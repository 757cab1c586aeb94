"""Slices of a GPU (MIG) and shares of its memory (vGPU) as devices of their own."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from forerun.data.facts import facts_of
from forerun.data.spec_sheet import Device

_BARE: Final = r"(?:\dc[.-])?\dg[.-]\d+gb(?:[.+-](?:me\.all|me|gfx))?"
PROFILE: Final = re.compile(
    r"(?:(?P<part>\d)c[.-])?(?P<units>\d)g[.-](?P<gigabytes>\d+)gb(?:(?P<sign>[.+-])(?P<media>.+))?"
)
"""A profile of a slice: compute slices of a compute instance, those of the whole slice, memory,
and what it has of engines for media and graphics.
"""
_FACTS: Final = facts_of(__file__)
PROFILES: Final[Sequence[tuple[str, float, str, Mapping[str, float]]]] = _FACTS["profiles"]
"""Patterns of names of GPUs that can be divided, their memory in gigabytes, their profiles, and the
memory of a slice by the gigabytes in the name of its profile, GiB."""
COMPUTE_SLICES: Final = {"4": 4, "7": 8}
"""Slices of the largest profile -> parts of the compute units, of which each slice has one."""
COMPUTE_UNITS: Final[Mapping[str, Sequence[int]]] = _FACTS["compute_units"]
"""Compute units of the whole GPU -> those of its profiles, in the order of `PROFILES`."""
SAME_MEMORY: Final = 0.01
"""Relative difference up to which memory is that of a row of `PROFILES`."""
MEMORY_SLICES: Final = 8
"""Memory of a GPU is divided into eight slices."""
WITH_SHARES: Final = re.compile(r"([pvtalhb]|gb|gh)\d+.*|quadro-rtx-.*|rtx-(a|6000-ada|pro-).*")
"""Names of GPUs that NVIDIA's virtual GPU software divides ("Virtual GPU Software User Guide")."""
SHARE: Final = re.compile(r"(?P<amount>\d{1,7})(?P<unit>c|q|mib|pct)")
"""A share of the memory: gigabytes of a vGPU of the series C or Q, MiB, or percent."""
BOARDS: Final[Mapping[str, str]] = _FACTS["boards"]
"""Board in the name of a vGPU type -> GPU."""
PART: Final = "a part of "
"""Begin of the caveat of a slice or share."""
IN_TURNS: Final = "times assume that nothing else uses its compute units and bandwidth"
_PART: Final = re.compile(r"mig|\dg[.-]\d+gb|\d(?:c|q|mib|pct)(?:me)?\s*$", re.IGNORECASE)
_NAME: Final = re.compile(
    rf"(?P<device>.+?)[ _-](?:mig[ _-](?P<any>\S+)|(?P<profile>{_BARE}))", re.IGNORECASE
)
_ALONE: Final = re.compile(rf"(?:nvidia\.com/)?(?:mig-)?(?P<profile>{_BARE})", re.IGNORECASE)
_TYPE: Final = re.compile(
    r"(?:(?:nvidia|grid)[ -]+)*(?P<board>.+?)-(?:(?P<units>[1-7])-)?"
    r"(?P<share>(?P<gigabytes>\d+)(?:[cq]|mib|pct))(?:me)?",
    re.IGNORECASE,
)


def device_and_profile(name: str) -> tuple[str, str] | None:
    """The name of a GPU and the profile of its slice or share; None for a name without one.

    >>> device_and_profile("a100-sxm-80gb-mig-1g-10gb"), device_and_profile("NVIDIA L40S-12Q")
    (('a100-sxm-80gb', '1g-10gb'), ('L40S', '12q'))
    >>> device_and_profile("GRID A100DX-3-40C"), device_and_profile("nvidia_a30_1g.6gb")
    (('A100DX', '3g.40gb'), ('nvidia_a30', '1g.6gb'))
    """
    if _PART.search(name) is None:
        return None
    if (found := _NAME.fullmatch(name.strip())) is not None:
        return found["device"], (found["any"] or found["profile"]).lower()
    if (found := _TYPE.fullmatch(name.strip())) is None:
        return None
    board = BOARDS.get(found["board"].lower(), found["board"])
    slice_ = found["units"] and f"{found['units']}g.{found['gigabytes']}gb"
    return board, slice_ or found["share"].lower()


def slice_of(device: Device, profile: str) -> Device | None:
    """A slice or a share of a GPU as a device, or the slice itself; None for a profile that it
    does not have.

    Memory of a slice is that of `PROFILES`. Bandwidth and cache, and memory where it is not listed,
    are in proportion to the memory of the profile, in eighths; compute units are those of
    `COMPUTE_UNITS`, else (and of a part of a slice) in proportion to its compute slices, and all of
    them in the largest profile; arithmetic is in proportion to compute units. No link joins slices
    (NVIDIA, "Multi-Instance GPU User Guide", application considerations), and they share the power
    limit of the GPU, which bounds none of them. A share has all but the memory to itself while
    nobody else is at work.

    Args:
        device: the whole GPU.
        profile: such as 1g.10gb or 1c.3g.40gb+me, or 12q, 4096mib or 50pct of a share.
    """
    if device.name.endswith(f"-mig-{profile.replace('.', '-')}"):
        return device
    share = SHARE.fullmatch(profile)
    figures = _sliced(device, profile) if share is None else _shared(device, share)
    if figures is None:
        return None
    said = "its figures are scaled from the whole GPU's" if share is None else IN_TURNS
    common = {
        "aliases": (),
        "node_devices": 1,
        "sources": {},
        "caveats": (*device.caveats, f"{PART}{device.name}: {said}"),
        "origin": "registered",
    }
    return device.model_copy(update={**common, **figures})


def is_slice(device: Device) -> bool:
    """Whether a device is a MIG slice."""
    return "-mig-" in device.name


def no_link(device: Device) -> str | None:
    """Why one model is not divided over several such devices, in words; None where it may be."""
    if device.kind == "cpu" or device.node_devices != 1:
        return None
    why = " (MIG slices have neither NVLink nor peer-to-peer access)" * is_slice(device)
    return f"no link joins one {device.name} to another{why}"


def no_power(device: Device) -> str | None:
    """Why the power of a GPU is not known, in words; None where its sheet has a design power."""
    if device.kind == "cpu" or device.tdp_w is not None:
        return None
    if is_slice(device):
        return "MIG slices share the power limit of the GPU; none has its own TDP"
    return "the spec sheet gives no TDP"


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


def profiles_of(device: Device) -> tuple[str, ...]:
    """The profiles of the slices that a GPU can be divided into; none of any other device."""
    return tuple(_memory_of(device))


def _memory_of(device: Device) -> dict[str, float | None]:
    """Profile of a slice of the GPU -> its memory, GiB; None where it is not listed."""
    return {
        profile: listed.get(profile.split(".")[1].split("gb")[0])
        for names, gigabytes, profiles, listed in PROFILES
        if re.fullmatch(f"({names})(-.+)?", device.name)
        and not any(caveat.startswith(PART) for caveat in device.caveats)
        and abs((device.memory_gib or 0.0) / gigabytes - 1.0) < SAME_MEMORY
        for profile in profiles.split()
    }


def why_no_slice(device: Device, profile: str) -> str:
    """Why a GPU has no slice of that profile, with those that it has, in a sentence."""
    if known := ", ".join(profiles_of(device)):
        return f"{device.name} has no MIG profile {profile:.40}; it has {known}."
    return f"{device.name} cannot be divided into MIG slices, or its profiles are not known."


def gpus_with(name: str, devices: Iterable[Device]) -> list[str]:
    """Names of the slices that a profile without a GPU may mean; none for any other name.

    Args:
        name: such as 1g.10gb, or nvidia.com/mig-1g.10gb, a resource of Kubernetes.
        devices: where slices are sought.
    """
    if (found := _ALONE.fullmatch(name.strip())) is None:
        return []
    slices = (slice_of(device, found["profile"].lower()) for device in devices)
    return [own.name for own in slices if own]


def _sliced(device: Device, profile: str) -> dict[str, object] | None:
    found, known = PROFILE.fullmatch(profile), profiles_of(device)
    if found is None or device.memory_gib is None or device.memory_bandwidth_gbs is None:
        return None
    units, gigabytes, part = found["units"], found["gigabytes"], found["part"]
    media = f"{found['sign']}{found['media']}" if found["media"] else ""
    whole = f"{units}g.{gigabytes}gb"
    names = (whole + media, whole + media.replace(".", "+", 1))
    own = next((known.index(name) for name in names if name in known), None)
    if own is None or (part or "1") > units:
        return None
    largest = known[-1][0]
    compute = int(part or units) / COMPUTE_SLICES[largest] if (part or units) != largest else 1.0
    listed = COMPUTE_UNITS.get(str(device.compute_units))
    if listed and device.compute_units and part in (None, units):
        compute = listed[own] / device.compute_units
    memory = round(MEMORY_SLICES * int(gigabytes) / device.memory_gib) / MEMORY_SLICES
    named = f"{part}c.{whole}" if part else whole
    return {
        "name": f"{device.name}-mig-{named.replace('.', '-')}",
        "title": f"{device.title} MIG {named}",
        "memory_gib": _memory_of(device)[known[own]] or memory * device.memory_gib,
        "memory_bandwidth_gbs": memory * device.memory_bandwidth_gbs,
        "peak_tflops": {name: compute * peak for name, peak in device.peak_tflops.items()},
        "fp32_matrix_tflops": _scaled(device.fp32_matrix_tflops, compute),
        "compute_units": device.compute_units and max(round(compute * device.compute_units), 1),
        "interconnect_gbs": None,
        "l2_mib": _scaled(device.l2_mib, memory),
        "tdp_w": None,
        "idle_w": None,
    }


def _scaled(figure: float | None, share: float) -> float | None:
    return None if figure is None else figure * share
