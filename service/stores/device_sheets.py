"""Spec sheets of devices outside the catalogue: from a file, by name alone, or detected."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from forerun.data.collectors.system.host import (
    cpu_model,
    cpu_vendor,
    fields_of,
    host_memory_gib,
    instruction_set,
    text_of,
    usable_cpus,
)
from forerun.data.described import first_fault
from forerun.data.device import Device, DeviceKind
from forerun.data.errors import InputError, UnknownDevice, why_unreadable
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
    """This machine's processor as `detected_cpu` has it, with measured formats; by name alone where
    the system does not report enough for a sheet.
    """
    with suppress(BadSheet):
        return detected_cpu(name, gains=measured_gains)
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


ROOT = Path("/")
CYCLE_FLOPS = {"avx512": 32, "avx2": 32, "avx": 16, "neon": 16, "sve": 32}
"""Vector extension -> fp32 FLOPs per cycle and core: two fused multiply-adds of 8
floats (AVX2, and AVX-512 as AMD's Zen 4 runs it), two of 4 on Arm."""
INTEL_AVX512_FLOPS = 64
"""fp32 FLOPs per cycle and core of Intel's servers: two fused multiply-adds of 16 floats."""
COPY_MIB, COPIES = 64, 5
INSTRUCTIONS = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp"},
    "int8": {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"},
}
"""Number format -> flags of /proc/cpuinfo, any of which says that a processor computes in it."""
SIDE = 1024
"""Rows and columns of the matrices whose products are timed."""


class BadSheet(InputError):
    """A spec sheet is not valid."""


def read_sheet(path: Path, name: str | None = None) -> Device:
    """Read a device from a .yaml or .json file with the fields of PUT /v1/devices/NAME.

    Args:
        path: the file.
        name: replaces the name in the sheet.

    Raises:
        BadSheet: there is no such file, or a field of it is invalid; the message names the field.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError:
        raise BadSheet(f"No sheet {path}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise BadSheet(f"{path} is not a valid sheet: {why_unreadable(error)}.") from None
    if not isinstance(content, dict):
        raise BadSheet(f"{path}: a sheet is a list of figures by name, such as `kind: cpu`.")
    if name is not None:
        content["name"] = name
    try:
        return Device.model_validate(content)
    except ValidationError as error:
        raise BadSheet(f"{path}, {first_fault(error, 'the sheet')}.") from None


def black_box_sheet(name: str, kind: str) -> Device:
    """A device without figures, whose predictions come from measurements alone.

    Raises:
        BadSheet: there is no such kind of device.
    """
    for known in get_args(DeviceKind):
        if known == kind:
            vendor = cpu_vendor() if kind == "cpu" else "unknown"
            return Device(name=slug(name), title=name, vendor=vendor, kind=known)
    raise BadSheet(f"--kind {kind!r} is not one of {', '.join(get_args(DeviceKind))}.")


def detected_cpu(
    name: str,
    root: Path = ROOT,
    copy_gbs: Callable[[], float] | None = None,
    gains: Callable[[Sequence[str]], Mapping[str, float]] | None = None,
) -> Device:
    """Detect this machine's processor.

    The peak rate in fp32 follows from the vector extension, the clock and the cores; in formats
    that the processor has instructions for, from how much faster torch multiplies matrices in them.
    The bandwidth is measured by copying memory; the cache size is that of the last level.

    Args:
        name: name of the device.
        root: folder of /proc and /sys.
        copy_gbs: measures the bandwidth, 1e9 bytes/s; `measured_copy_gbs` when None.
        gains: measures formats, as `measured_gains` does; formats other than fp32 have no peak when
            None.

    Raises:
        BadSheet: the system does not report the clock or the vector extension.
    """
    clock, vectors = clock_mhz(root), instruction_set(root)
    if clock is None or vectors is None:
        raise BadSheet("This system tells no clock or vectors: `forerun devices add --black-box`.")
    family = vectors.partition("-")[0]
    wide = family == "avx512" and cpu_vendor(root) == "intel"
    flops = INTEL_AVX512_FLOPS if wide else CYCLE_FLOPS[family]
    cores = usable_cpus()
    bandwidth = (copy_gbs or measured_copy_gbs)()
    cache = last_cache_mib(root)
    sources = {
        "peak_tflops.fp32": f"derived: {flops} FLOPs a cycle ({vectors}) on {cores} cores",
        "memory_bandwidth_gbs": f"derived: copying {COPY_MIB} MiB on one core",
        "compute_units": "derived: processors that this process may use",
        "boost_clock_mhz": "derived: /proc/cpuinfo or cpufreq",
    }
    fp32 = cores * clock * flops / 1e6
    peaks, formats = {"fp32": float(f"{fp32:.3g}")}, formats_of(root)
    for format_, gain in (gains(formats) if gains is not None and formats else {}).items():
        peaks[format_] = float(f"{fp32 * gain:.3g}")
        sources[f"peak_tflops.{format_}"] = f"derived: {gain:.3g} x fp32 in torch"
    sources |= {"l2_mib": "derived: /sys/devices/system/cpu"} if cache else {}
    memory = host_memory_gib(root)
    sources |= {"memory_gib": "derived: what this machine may use"} if memory else {}
    return Device(
        name=slug(name),
        title=f"{cpu_model(root)} ({name})",
        vendor=cpu_vendor(root),
        kind="cpu",
        memory_gib=memory,
        memory_bandwidth_gbs=float(f"{bandwidth:.3g}"),
        peak_tflops=peaks,
        compute_units=cores,
        boost_clock_mhz=clock,
        l2_mib=cache,
        sources=sources,
    )


def formats_of(root: Path = ROOT) -> list[str]:
    """Number formats, apart from fp32, that the processor has instructions for."""
    cpu = fields_of(root / "proc/cpuinfo")
    flags = set(cpu.get("flags", cpu.get("Features", "")).split())
    return [name for name, any_of in INSTRUCTIONS.items() if flags & any_of]


def measured_gains(formats: Sequence[str]) -> dict[str, float]:
    """Format -> how many times faster torch multiplies matrices in it than in fp32.

    Formats that torch cannot multiply, or not faster, are left out; all are without torch.
    """
    try:
        import torch
    except ImportError:
        return {}
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}

    def seconds(kind: torch.dtype) -> float:
        one = torch.ones(SIDE, SIDE, dtype=torch.float32).to(kind)
        product = torch._int_mm if kind == torch.int8 else torch.mm
        times = []
        for _ in range(COPIES):
            start = time.perf_counter()
            product(one, one)
            times.append(time.perf_counter() - start)
        return min(times)

    found, plain = {}, seconds(torch.float32)
    for name in formats:
        with suppress(RuntimeError, AttributeError):
            found[name] = plain / seconds(types[name])
    return {name: gain for name, gain in found.items() if gain > 1.0}


def clock_mhz(root: Path = ROOT) -> float | None:
    """The highest clock that the system reports for the first processor, MHz; None if unknown."""
    most = text_of(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if most.isdigit():
        return int(most) / 1e3
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", text_of(root / "proc/cpuinfo"), re.MULTILINE)
    return round(float(match[1])) if match else None


def last_cache_mib(root: Path = ROOT) -> float | None:
    """The largest cache of the first processor, MiB; None where the system does not report it."""
    sizes = []
    for file in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size")):
        match = re.fullmatch(r"(\d+)([KM])", text_of(file).strip())
        if match:
            sizes.append(int(match[1]) / (1024 if match[2] == "K" else 1))
    return max(sizes, default=None)


def measured_copy_gbs() -> float:
    """Memory bandwidth, 1e9 bytes/s: bytes read and written by the fastest of several copies."""
    import numpy as np

    source = np.ones(COPY_MIB * 2**17)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(COPIES):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best / 1e9
