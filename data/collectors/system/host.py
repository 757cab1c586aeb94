"""The measuring machine: processor, resource limits, and its other load."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from forerun.data.collectors.system.cgroup import MIB, V1_UNLIMITED, layout

ROOT = Path("/")


def cpu_model(root: Path = ROOT) -> str:
    """The processor's own name; its architecture where it gives none."""
    text = text_of(root / "proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else (platform.processor() or platform.machine())


def instruction_set(root: Path = ROOT) -> str | None:
    """The widest vectors that runtimes use: `avx512-vnni`, `avx512`, `avx2`, `neon`, ...

    None where it is unknown.
    """
    text = text_of(root / "proc/cpuinfo")
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    if not found:
        return None
    flags = set(found[1].split())
    known = {"avx512_vnni": "avx512-vnni", "avx512f": "avx512", "avx2": "avx2", "avx": "avx"}
    known |= {"sve": "sve", "asimd": "neon"}
    return next((name for flag, name in known.items() if flag in flags), None)


def cpu_vendor(root: Path = ROOT) -> str:
    """`intel`, `amd`, `arm`, ... ; `unknown` where the processor does not say."""
    found = re.search(r"^vendor_id\s*:\s*(\S+)$", text_of(root / "proc/cpuinfo"), re.MULTILINE)
    known = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
    if found:
        return known.get(found[1], found[1].lower())
    return "arm" if platform.machine() in ("aarch64", "arm64") else "unknown"


def usable_cpus() -> int:
    """Logical processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_limits(root: Path = ROOT) -> dict[str, float | None]:
    """Processors (a share of time, such as 1.5) and memory that a control group allows.

    Read from this process's own group, version 1 or 2; None where nothing is limited or reported.
    """
    mounts, own = text_of(root / "proc/self/mounts"), text_of(root / "proc/self/cgroup")
    folders = {name: root / path.lstrip("/") for name, path in layout(mounts, own).folders.items()}
    unified, cpu, memory = (folders.get(name) for name in ("unified", "cpu", "memory"))
    quota, period, most = "", "", ""
    if unified is not None:
        quota, _, period = text_of(unified / "cpu.max").partition(" ")
        most = text_of(unified / "memory.max")
    if cpu is not None:
        quota, period = (
            text_of(cpu / "cpu.cfs_quota_us"),
            text_of(cpu / "cpu.cfs_period_us"),
        )
    if memory is not None:
        most = text_of(memory / "memory.limit_in_bytes")
    bound = quota.strip().isdigit() and int(period or 0) > 0
    limit = float(most) if most.strip().isdigit() else V1_UNLIMITED
    return {
        "cgroup_cpus": int(quota) / int(period) if bound else None,
        "cgroup_memory_mib": limit / MIB if limit < V1_UNLIMITED else None,
    }


def host_memory_gib(root: Path = ROOT) -> float | None:
    """Memory of the machine, or what a control group leaves of it, GiB; None where not known."""
    found = re.search(r"^MemTotal:\s*(\d+) kB$", text_of(root / "proc/meminfo"), re.MULTILINE)
    limit = cgroup_limits(root)["cgroup_memory_mib"]
    sizes = [int(found[1]) / 2**20] if found else []
    sizes += [limit / 1024] if limit is not None else []
    return float(f"{min(sizes):.4g}") if sizes else None


def governor(root: Path = ROOT) -> str | None:
    """The frequency governor of the first processor, `performance` at best; None where none is."""
    file = root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return text_of(file).strip() or None


def load() -> float | None:
    """Runnable processes over the last minute; None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def library(name: str) -> str | None:
    """An installed package's version without importing it; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def host_columns(root: Path = ROOT) -> dict[str, Any]:
    """Fixed properties of the machine, as columns of a table."""
    return {
        "cpu_model": cpu_model(root),
        "instruction_set": instruction_set(root),
        "cpus": usable_cpus(),
        "governor": governor(root),
        **cgroup_limits(root),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": library("numpy"),
    }


def text_of(file: Path) -> str:
    """The text of a file of the system; empty where it cannot be read."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
