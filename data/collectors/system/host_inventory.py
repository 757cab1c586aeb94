"""Properties of this machine, and the sources that can be read on it.

No host name, address or path of the machine is kept. Beyond files there are hardware counters of
every CPU through perf_event_open(2), rarely available inside a guest, and metrics of a host's
virtual machines by `virsh domstats`; these are numbered as they are first seen, without names.
"""

import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forerun.data.collectors.system.host import ROOT, fields_of, mib_in, text_of
from forerun.data.collectors.system.procfs import (
    SOURCES,
    Missing,
    Readable,
    Reading,
    Resctrl,
    group_folders,
    sources,
    task_times,
)
from forerun.data.facts import facts_of

SOCKET = "run/libvirt/libvirt-sock"
TOOL = "virsh"
COMMAND = ("--readonly", "domstats", "--raw", "--cpu-total", "--balloon", "--vcpu", "--interface")
LONGEST_S = 0.5
"""Seconds after which a reading is given up, so that the sampler's clock continues."""

_FIELDS = facts_of(__file__)
_COUNTED = {re.compile(pattern): counter for pattern, counter in _FIELDS["counters"].items()}
"""Pattern of a field of virsh -> counter; those of several CPUs, interfaces and disks add up."""


@dataclass(frozen=True)
class Libvirt:
    """All machines of this host.

    Attributes:
        name: name of the source in `sources.json`.
        numbers: machine -> its number, in the order in which they were first seen.
    """

    name: str = "libvirt"
    numbers: dict[str, int] = field(default_factory=dict)

    def read(self, root: Path) -> Reading:
        """Output of virsh now, as a reading.

        Raises:
            OSError: libvirt does not run here, virsh is missing, refuses or is too slow.
        """
        if not (root / SOCKET).exists():
            raise FileNotFoundError(f"no /{SOCKET}")
        tool = shutil.which(TOOL)
        if tool is None:
            raise FileNotFoundError(f"no {TOOL}")
        try:
            done = subprocess.run(  # noqa: S603
                [tool, *COMMAND, "--block"],
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise OSError(f"{TOOL}: {type(error).__name__}") from error
        return machines(done.stdout, self.numbers)


def machines(text: str, numbers: dict[str, int]) -> Reading:
    """Values in the text of `virsh domstats --raw`; lines that are not understood are skipped.

    Args:
        text: what virsh printed.
        numbers: name -> number of machines seen before; new machines are added.
    """
    reading = Reading()
    for block in re.split(r"^Domain: ", text, flags=re.MULTILINE)[1:]:
        name, *lines = block.splitlines()
        prefix = f"libvirt.vm{numbers.setdefault(name, len(numbers))}"
        for line in lines:
            field, _, value = line.strip().partition("=")
            try:
                amount = float(value)
            except ValueError:
                continue
            if field in _FIELDS["balloon"]:
                reading.gauges[f"{prefix}.{_FIELDS['balloon'][field]}"] = amount / 1024
            for pattern, counter in _COUNTED.items():
                if pattern.fullmatch(field):
                    key, unit = f"{prefix}.{counter}", 1e-9 if counter.endswith("_s") else 1.0
                    reading.cumulative[key] = reading.cumulative.get(key, 0.0) + unit * amount
    return reading


SYSTEM_CALLS: Final[Mapping[str, int]] = {"x86_64": 298, "aarch64": 241}
"""Architecture -> number of the system call."""

HARDWARE: Final = 0
SOFTWARE: Final = 1
EVENTS: Final[Mapping[str, tuple[int, int]]] = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache_references": (HARDWARE, 2),
    "cache_misses": (HARDWARE, 3),
}
"""Counter -> type and number of the kernel's generic event (linux/perf_event.h). Four, because more
would take turns on the counters that there are."""

ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQ")
"""The first published version of struct perf_event_attr: type, size, config, period, sample type,
read format, flags, wakeup, breakpoint type, config1."""

READ_FORMAT: Final = 3
"""Each reading also holds the times for which the event was enabled and was counted, ns."""

COUNTS: Final = struct.Struct("=QQQ")
CLOSE_ON_EXEC: Final = 8
EVERY_PROCESS: Final = -1
NO_GROUP: Final = -1


@dataclass(frozen=True)
class PerfCounters:
    """Open counters.

    Attributes:
        files: (CPU, event) -> file descriptor.
        name: name of the source in `sources.json`.
        totals: (CPU, event) -> the last reading of the file, and events so far.
    """

    files: Mapping[tuple[int, str], int]
    name: str = "perf hardware counters"
    totals: dict[tuple[int, str], tuple[int, int, int, float]] = field(default_factory=dict)

    def read(self, root: Path) -> Reading:
        """Events so far by CPU, scaled up for the time in which other events were counted.

        Raises:
            OSError: a counter cannot be read any more.
        """
        reading = Reading()
        for key, file in self.files.items():
            read = COUNTS.unpack(os.read(file, COUNTS.size))
            *before, total = self.totals.get(key, (0, 0, 0, 0.0))
            events, wanted_ns, counted_ns = (int(b - a) for a, b in zip(before, read, strict=True))
            if counted_ns > 0:
                total += events * (wanted_ns / counted_ns)
                self.totals[key] = (*read, total)
            if key in self.totals:
                reading.cumulative[f"perf.cpu{key[0]}.{key[1]}"] = total
        return reading


@contextmanager
def perf_counters(
    cpus: Sequence[int], events: Mapping[str, tuple[int, int]] = EVENTS
) -> Iterator[PerfCounters]:
    """Counters of all processes on some CPUs, closed when the block is left.

    Args:
        cpus: their numbers.
        events: counter -> type and number.

    Raises:
        OSError: the machine has no such counters, or this process may not read them.
    """
    with ExitStack() as stack:
        files = {}
        for cpu in cpus:
            for event, (kind, number) in events.items():
                files[cpu, event] = file = _opened(cpu, kind, number)
                stack.callback(os.close, file)
        yield PerfCounters(files)


def _opened(cpu: int, kind: int, number: int) -> int:
    call = SYSTEM_CALLS.get(platform.machine())
    if call is None or platform.system() != "Linux":
        raise OSError(f"no perf_event_open known on {platform.system()} {platform.machine()}")
    wanted = ATTRIBUTES.pack(kind, ATTRIBUTES.size, number, 0, 0, READ_FORMAT, 0, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(
        ctypes.c_long(call),
        ctypes.c_char_p(wanted),
        ctypes.c_int(EVERY_PROCESS),
        ctypes.c_int(cpu),
        ctypes.c_int(NO_GROUP),
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


def all_sources(root: Path = ROOT) -> tuple[Readable, ...]:
    """Files of /proc and of this process's control groups, resctrl, and virtual machines."""
    mounts, own = text_of(root / "proc/self/mounts"), text_of(root / "proc/self/cgroup")
    return (*SOURCES, *sources(group_folders(mounts, own)), Resctrl(), Libvirt())


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
    cpu, memory_mib = fields_of(root / "proc/cpuinfo"), mib_in(root / "proc/meminfo", "MemTotal")
    flags = cpu.get("flags", "").split()
    return {
        "cpu_model": cpu.get("model name"),
        "vcpus": cpus,
        "memory_mib": None if memory_mib is None else round(memory_mib),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "virtual": "hypervisor" in flags,
        "caches": _caches(root),
        "transparent_hugepages": _chosen(
            text_of(root / "sys/kernel/mm/transparent_hugepage/enabled")
        ),
    }


def usable_cpus() -> list[int]:
    """Numbers of the CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def _caches(root: Path) -> dict[str, str]:
    found = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (text_of(index / name).strip() for name in ("level", "type", "size"))
        if level and size:
            found[f"L{level} {kind.lower()}"] = size
    return found


def _chosen(text: str) -> str | None:
    return text.partition("[")[2].partition("]")[0] or None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error) or type(error).__name__).lower()
    return "its text cannot be parsed"
