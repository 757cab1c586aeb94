"""Properties of this machine, and the sources that can be read inside a guest.

No host name, address or path of the machine is kept.
"""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from forerun.data.collectors.system.cgroup import layout, sources
from forerun.data.collectors.system.counters import Missing, Readable, Reading
from forerun.data.collectors.system.libvirt import Libvirt
from forerun.data.collectors.system.perf_counters import PerfCounters, perf_counters
from forerun.data.collectors.system.procfs import SOURCES, task_times
from forerun.data.collectors.system.resctrl import Resctrl

ROOT = Path("/")


def all_sources(root: Path = ROOT) -> tuple[Readable, ...]:
    """Files of /proc and of this process's control groups, resctrl, and virtual machines."""
    try:
        mounts = (root / "proc/self/mounts").read_text(encoding="utf-8")
        membership = (root / "proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return (*SOURCES, Resctrl(), Libvirt())
    return (*SOURCES, *sources(layout(mounts, membership)), Resctrl(), Libvirt())


@contextmanager
def hardware_counters(cpus: Sequence[int]) -> Iterator[Readable]:
    """Hardware counters of these CPUs while the block lasts; missing where there are none."""
    with ExitStack() as stack:
        found: Readable
        try:
            found = stack.enter_context(perf_counters(cpus))
        except OSError as error:
            found = Missing(PerfCounters.name, _reason(error))
        yield found


def availability(listed: Sequence[Readable], root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Source -> whether it can be read here, and why not."""
    found = {}
    for source in listed:
        try:
            reading = source.read(root)
        except (OSError, ValueError) as error:
            found[source.name] = {"available": False, "reason": _reason(error)}
        else:
            fields = len(reading.cumulative) + len(reading.gauges)
            empty = {} if fields else {"reason": "it holds nothing"}
            found[source.name] = {"available": bool(fields), "fields": fields, **empty}
    return found


def read_all(listed: Sequence[Readable], root: Path = ROOT) -> Reading:
    """Values of all sources now; a source that fails is missing from the reading."""
    reading = Reading()
    for source in listed:
        try:
            reading.add(source.read(root))
        except (OSError, ValueError):
            continue
    return reading


def read_task(process: int, root: Path = ROOT) -> Mapping[str, float]:
    """Seconds that a process ran and waited for a CPU; empty when it has ended or none are read."""
    texts = []
    try:
        for thread in (root / f"proc/{process}/task").iterdir():
            texts.append((thread / "schedstat").read_text(encoding="utf-8"))
    except OSError:
        return {}
    return task_times(texts)


def facts(cpus: int, root: Path = ROOT) -> dict[str, Any]:
    """Processor, memory, kernel, caches and hypervisor, as far as the system reports them.

    Args:
        cpus: how many may be used.
        root: root of the file system, another one in tests.
    """
    cpu = _pairs(_text(root / "proc/cpuinfo"))
    memory = _pairs(_text(root / "proc/meminfo")).get("MemTotal", "").split()
    flags = cpu.get("flags", "").split()
    return {
        "cpu_model": cpu.get("model name"),
        "vcpus": cpus,
        "memory_mib": round(float(memory[0]) / 1024) if memory else None,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "virtual": "hypervisor" in flags,
        "caches": _caches(root),
        "transparent_hugepages": _chosen(
            _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
        ),
    }


def usable_cpus() -> list[int]:
    """Numbers of the CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def _caches(root: Path) -> dict[str, str]:
    found = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name).strip() for name in ("level", "type", "size"))
        if level and size:
            found[f"L{level} {kind.lower()}"] = size
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _pairs(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _chosen(text: str) -> str | None:
    return text.partition("[")[2].partition("]")[0] or None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error) or type(error).__name__).lower()
    return "its text is not understood"
