"""Counters and gauges of the whole machine and of this process's control group, from text files.

Files are those of /proc, of control groups (version 1, version 2, or both: /proc/self/cgroup and
/proc/self/mounts say which hierarchy holds a controller) and of /sys/fs/resctrl, which monitors
last-level cache and memory bandwidth and is rarely available inside a guest. Times are in seconds,
sizes in bytes, memory in MiB. Parsers are pure and skip lines that they do not understand, so that
another kernel's fields are missing rather than wrong.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

WIDTHS = (2.0**32, 2.0**64)
WRAP_SHARE = 0.25
"""A counter that falls has wrapped only where it moved less than this share of its width."""

LATE = 1.5
"""Readings further apart than this many intervals of the clock leave a gap."""


@dataclass
class Reading:
    """Values of sources at one time, by name; values that could not be read are missing.

    Attributes:
        cumulative: counters that only grow.
        gauges: instantaneous values.
    """

    cumulative: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Reading") -> None:
        """Add the values of another reading."""
        self.cumulative |= other.cumulative
        self.gauges |= other.gauges


class Readable(Protocol):
    """A source that is read on the clock.

    Attributes:
        name: name of the source in `sources.json`.
    """

    @property
    def name(self) -> str:
        """Name of the source in `sources.json`."""
        ...

    def read(self, root: Path) -> Reading:
        """Its numbers now.

        Args:
            root: root of the file system, another one in tests.

        Raises:
            OSError: it is not there or may not be read.
            ValueError: its text cannot be parsed.
        """
        ...


@dataclass(frozen=True)
class Missing:
    """A source that this machine does not have.

    Attributes:
        name: name of the source in `sources.json`.
        reason: why it is missing.
    """

    name: str
    reason: str

    def read(self, root: Path) -> Reading:
        """Nothing.

        Raises:
            OSError: always.
        """
        raise OSError(self.reason)


def growth(before: float, after: float) -> float:
    """How far a counter moved, through a wrap of 32 or 64 bits; NaN where it was set back."""
    if after >= before:
        return after - before
    for width in WIDTHS:
        moved = (width - before) + after
        if before < width and moved <= WRAP_SHARE * width:
            return moved
    return math.nan


def rates(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """Rate per second of every counter of the later reading; NaN where the earlier one lacks it.

    Args:
        before: name -> value of cumulative counters.
        after: the same, later.
        seconds: monotonic time between them; rates of no time are NaN.
    """
    if not seconds > 0:
        return dict.fromkeys(after, math.nan)
    return {
        name: growth(before.get(name, math.nan), value) / seconds for name, value in after.items()
    }


def is_gap(seconds: float, interval_s: float) -> bool:
    """Whether readings that should be one interval apart are so far apart that some are missing.

    Time that ran backwards is a gap too.
    """
    return not 0 < seconds <= LATE * interval_s


SECTOR = 512
CPU_TIMES = "user nice system idle iowait irq softirq steal".split()
DISK_FIELDS = (
    "reads reads_merged read_bytes read_s writes writes_merged write_bytes write_s in_flight io_s "
    "weighted_s discards discards_merged discard_bytes discard_s flushes flush_s"
).split()
NET_FIELDS = "bytes packets errors drops".split()
VMSTAT_COUNTERS = frozenset({"nr_dirtied", "nr_written", "nr_vmscan_write"})
"""Fields of vmstat that are counted up although their names begin like those of gauges."""

_VIRTUAL_DISK = re.compile(r"(loop|ram|zram|fd|sr|dm-|md)\d")
_PARTITION = re.compile(r"((?:sd|vd|xvd|hd)[a-z]+\d+|(?:nvme\d+n\d+|mmcblk\d+)p\d+)")


@dataclass(frozen=True)
class Source:
    """One file, and how its text is read.

    Attributes:
        name: name of the source in `sources.json`.
        path: relative to the root of the file system.
        parse: text -> reading.
    """

    name: str
    path: str
    parse: Callable[[str], Reading]

    def read(self, root: Path) -> Reading:
        """The file's numbers now.

        Raises:
            OSError: it is not there or may not be read.
        """
        return self.parse((root / self.path).read_text(encoding="utf-8", errors="replace"))


def stat(text: str, ticks_per_s: float | None = None) -> Reading:
    """/proc/stat: seconds by CPU and kind, switches, forks, interrupts; tasks that run or wait."""
    per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
    reading = Reading()
    for key, values in _fields(text):
        if key.startswith("cpu"):
            for kind, ticks in zip(CPU_TIMES, values, strict=False):
                reading.cumulative[f"{key}.{kind}_s"] = ticks / per_s
        elif key in ("ctxt", "processes", "intr", "softirq"):
            reading.cumulative[f"stat.{key}"] = values[0]
        elif key in ("procs_running", "procs_blocked"):
            reading.gauges[f"stat.{key}"] = values[0]
    return reading


def pressure(resource: str, of: str = "") -> Callable[[str], Reading]:
    """/proc/pressure/RESOURCE, or a group's: seconds stalled, and the average over 10 s."""

    def parse(text: str) -> Reading:
        reading = Reading()
        for line in text.splitlines():
            kind, *pairs = line.split()
            values = dict(pair.partition("=")[::2] for pair in pairs)
            name = f"{of}pressure.{resource}.{kind}"
            if "total" in values:
                reading.cumulative[f"{name}_s"] = float(values["total"]) / 1e6
            if "avg10" in values:
                reading.gauges[f"{name}_avg10"] = float(values["avg10"])
        return reading

    return parse


def vmstat(text: str) -> Reading:
    """/proc/vmstat: pages by state, and events of the memory manager."""
    reading = Reading()
    for key, values in _fields(text):
        is_gauge = key.startswith("nr_") and key not in VMSTAT_COUNTERS
        (reading.gauges if is_gauge else reading.cumulative)[f"vmstat.{key}"] = values[0]
    return reading


def diskstats(text: str) -> Reading:
    """/proc/diskstats, summed over whole disks; partitions and virtual disks would count twice."""
    total: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 14 or _VIRTUAL_DISK.match(words[2]) or _PARTITION.fullmatch(words[2]):
            continue
        for kind, word in zip(DISK_FIELDS, words[3:], strict=False):
            scale = SECTOR if kind.endswith("bytes") else 1e-3 if kind.endswith("_s") else 1.0
            total[kind] = total.get(kind, 0.0) + scale * float(word)
    queue = {"disk.in_flight": total.pop("in_flight")} if total else {}
    return Reading({f"disk.{kind}": value for kind, value in total.items()}, queue)


def net_dev(text: str) -> Reading:
    """/proc/net/dev: loopback, and the sum of all other interfaces, received and sent."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        interface, colon, rest = line.partition(":")
        values = rest.split()
        if not colon or len(values) < 16:
            continue
        where = "lo" if interface.strip() == "lo" else "net"
        for direction, part in (("received", values[:4]), ("sent", values[8:12])):
            for kind, word in zip(NET_FIELDS, part, strict=True):
                name = f"{where}.{direction}_{kind}"
                found[name] = found.get(name, 0.0) + float(word)
    return Reading(found)


def schedstat(text: str) -> Reading:
    """/proc/schedstat: seconds that tasks ran and waited to run, by CPU and in all."""
    found: dict[str, float] = {}
    for key, values in _fields(text):
        if not re.fullmatch(r"cpu\d+", key) or len(values) < 9:
            continue
        parts = {"run_s": values[6] / 1e9, "wait_s": values[7] / 1e9, "slices": values[8]}
        for kind, value in parts.items():
            found[f"sched.{key}.{kind}"] = value
            found[f"sched.{kind}"] = found.get(f"sched.{kind}", 0.0) + value
    return Reading(found)


def softirqs(text: str) -> Reading:
    """/proc/softirqs: how many of each kind, over all CPUs."""
    return Reading({f"softirq.{kind}": total for kind, total in _by_kind(text)})


def interrupts(text: str) -> Reading:
    """/proc/interrupts: those between CPUs and of timers (LOC, RES, CAL, TLB), over all CPUs."""
    kept = {"LOC", "RES", "CAL", "TLB"}
    return Reading({f"interrupt.{kind}": total for kind, total in _by_kind(text) if kind in kept})


def meminfo(text: str) -> Reading:
    """/proc/meminfo: MiB by use."""
    lines = (line.partition(":") for line in text.splitlines())
    sizes = {key: rest.split() for key, _, rest in lines}
    return Reading(
        gauges={
            f"memory.{key}_mib": float(words[0]) / 1024
            for key, words in sizes.items()
            if words[-1:] == ["kB"]
        }
    )


def loadavg(text: str) -> Reading:
    """/proc/loadavg: the kernel's averages, and tasks that run and that exist."""
    one, five, fifteen, tasks = text.split()[:4]
    running, _, existing = tasks.partition("/")
    values = {"1": one, "5": five, "15": fifteen, "running": running, "tasks": existing}
    return Reading(gauges={f"load.{name}": float(value) for name, value in values.items()})


def task_times(texts: list[str]) -> Mapping[str, float]:
    """Seconds on a CPU and waiting for one, of one process, from its threads' schedstat files."""
    parts = [tuple(map(float, text.split()[:2])) for text in texts if len(text.split()) >= 2]
    if not parts:
        return {}
    return {
        "task.cpu_s": sum(ran for ran, _ in parts) / 1e9,
        "task.wait_s": sum(waited for _, waited in parts) / 1e9,
    }


SOURCES = (
    Source("stat", "proc/stat", stat),
    Source("pressure_cpu", "proc/pressure/cpu", pressure("cpu")),
    Source("pressure_io", "proc/pressure/io", pressure("io")),
    Source("pressure_memory", "proc/pressure/memory", pressure("memory")),
    Source("vmstat", "proc/vmstat", vmstat),
    Source("diskstats", "proc/diskstats", diskstats),
    Source("net_dev", "proc/net/dev", net_dev),
    Source("schedstat", "proc/schedstat", schedstat),
    Source("softirqs", "proc/softirqs", softirqs),
    Source("interrupts", "proc/interrupts", interrupts),
    Source("meminfo", "proc/meminfo", meminfo),
    Source("loadavg", "proc/loadavg", loadavg),
)


def _fields(text: str) -> Iterator[tuple[str, list[float]]]:
    for line in text.splitlines():
        key, *words = line.split() or [""]
        try:
            values = [float(word) for word in words]
        except ValueError:
            continue
        if values:
            yield key, values


def _by_kind(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        kind, colon, rest = line.partition(":")
        counts = [float(word) for word in rest.split() if word.isdigit()]
        if colon and counts:
            yield kind.strip(), sum(counts)


MIB = 2.0**20
V1_UNLIMITED = 2.0**60
"""Version 1 writes a number of this size where there is no limit."""


def group_folders(mounts: str, membership: str) -> dict[str, str]:
    """Where a process's groups are: controller -> folder of version 1; `unified` -> of version 2.

    Args:
        mounts: text of /proc/self/mounts.
        membership: text of /proc/self/cgroup.
    """
    v1: dict[str, str] = {}
    unified: str | None = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) >= 4 and words[2] == "cgroup":
            v1 |= dict.fromkeys(words[3].split(","), words[1])
        elif len(words) >= 3 and words[2] == "cgroup2":
            unified = words[1]
    folders: dict[str, str] = {}
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names and unified is not None:
            folders["unified"] = _join(unified, path)
        for name in filter(None, names.split(",")):
            if name in v1:
                folders[name] = _join(v1[name], path)
    return folders


def sources(folders: Mapping[str, str]) -> tuple[Source, ...]:
    """Files to read in `group_folders`; some may not be there, as in the root group."""
    listed = []
    for controller, name, parse in V1_FILES:
        if controller in folders:
            listed.append(_source("v1", folders[controller], name, parse))
    for bound, name, parse in V2_FILES:
        if "unified" in folders and not set(bound) & set(folders):
            listed.append(_source("v2", folders["unified"], name, parse))
    return tuple(listed)


def cpu_stat(text: str) -> Reading:
    """`cpu.stat` of either version: seconds used and throttled, periods."""
    reading = Reading()
    for key, value in _pairs(text):
        if key.endswith("_usec"):
            reading.cumulative[f"cgroup.cpu.{key.removesuffix('_usec')}_s"] = value / 1e6
        elif key == "throttled_time":
            reading.cumulative["cgroup.cpu.throttled_s"] = value / 1e9
        elif key.startswith("nr_"):
            reading.cumulative[f"cgroup.cpu.{key}"] = value
    return reading


def cpuacct_usage(text: str) -> Reading:
    """`cpuacct.usage` of version 1: seconds used."""
    return Reading({"cgroup.cpu.usage_s": float(text) / 1e9})


def memory_now(text: str) -> Reading:
    """`memory.current` or `memory.usage_in_bytes`."""
    return Reading(gauges={"cgroup.memory.used_mib": float(text) / MIB})


def memory_limit(text: str) -> Reading:
    """`memory.max` or `memory.limit_in_bytes`; nothing where there is no limit."""
    if text.strip() == "max" or float(text) >= V1_UNLIMITED:
        return Reading()
    return Reading(gauges={"cgroup.memory.limit_mib": float(text) / MIB})


def memory_stat(text: str) -> Reading:
    """`memory.stat` of either version: pages by use, reclaim events."""
    gauges = {"anon", "file", "cache", "rss", "slab", "sock", "shmem"}
    reading = Reading()
    for key, value in _pairs(text):
        if key in gauges:
            reading.gauges[f"cgroup.memory.{key}_mib"] = value / MIB
        elif key.startswith(("pgscan", "pgsteal", "workingset_refault")):
            reading.cumulative[f"cgroup.memory.{key}"] = value
    return reading


def io_stat(text: str) -> Reading:
    """`io.stat` of version 2, summed over devices."""
    names = {"rbytes": "read_bytes", "wbytes": "write_bytes", "rios": "reads", "wios": "writes"}
    total: dict[str, float] = {}
    for line in text.splitlines():
        for pair in line.split()[1:]:
            key, _, value = pair.partition("=")
            if key in names and value.isdigit():
                name = f"cgroup.io.{names[key]}"
                total[name] = total.get(name, 0.0) + float(value)
    return Reading(total)


def blkio_bytes(text: str) -> Reading:
    """`blkio.throttle.io_service_bytes` of version 1, summed over devices."""
    names = {"Read": "cgroup.io.read_bytes", "Write": "cgroup.io.write_bytes"}
    total: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in names:
            total[names[words[1]]] = total.get(names[words[1]], 0.0) + float(words[2])
    return Reading(total)


V1_FILES: tuple[tuple[str, str, Callable[[str], Reading]], ...] = (
    ("cpu", "cpu.stat", cpu_stat),
    ("cpuacct", "cpuacct.usage", cpuacct_usage),
    ("memory", "memory.usage_in_bytes", memory_now),
    ("memory", "memory.limit_in_bytes", memory_limit),
    ("memory", "memory.stat", memory_stat),
    ("blkio", "blkio.throttle.io_service_bytes", blkio_bytes),
)
V2_FILES: tuple[tuple[tuple[str, ...], str, Callable[[str], Reading]], ...] = (
    (("cpu", "cpuacct"), "cpu.stat", cpu_stat),
    (("memory",), "memory.current", memory_now),
    (("memory",), "memory.max", memory_limit),
    (("memory",), "memory.stat", memory_stat),
    (("blkio",), "io.stat", io_stat),
    ((), "cpu.pressure", pressure("cpu", "cgroup.")),
    ((), "io.pressure", pressure("io", "cgroup.")),
    ((), "memory.pressure", pressure("memory", "cgroup.")),
)
"""Controllers of version 1 that, where they are bound, hold the same; name; parser."""


def _source(version: str, folder: str, name: str, parse: Callable[[str], Reading]) -> Source:
    return Source(f"cgroup {version} {name}", f"{folder.lstrip('/')}/{name}", parse)


def _join(mount: str, path: str) -> str:
    return mount if path.strip("/") == "" else f"{mount.rstrip('/')}/{path.strip('/')}"


def _pairs(text: str) -> list[tuple[str, float]]:
    words = (line.split() for line in text.splitlines())
    return [(w[0], float(w[1])) for w in words if len(w) == 2 and w[1].isdigit()]


FOLDER = "sys/fs/resctrl/mon_data"
COUNTED = ("mbm_total_bytes", "mbm_local_bytes")
OCCUPANCY = "llc_occupancy"


@dataclass(frozen=True)
class Resctrl:
    """The monitor of the root group.

    Attributes:
        name: name of the source in `sources.json`.
    """

    name: str = "resctrl"

    def read(self, root: Path) -> Reading:
        """Bytes moved so far, and MiB that are held, by cache.

        Raises:
            OSError: there is no resctrl, or it may not be read.
        """
        reading = Reading()
        for cache in sorted((root / FOLDER).iterdir()):
            domain, _, number = cache.name.removeprefix("mon_").rpartition("_")
            if domain != "L3":
                continue
            prefix = f"resctrl.l3_{int(number)}"
            for event in COUNTED:
                value = _number(cache / event)
                if value is not None:
                    reading.cumulative[f"{prefix}.{event}"] = value
            held = _number(cache / OCCUPANCY)
            if held is not None:
                reading.gauges[f"{prefix}.{OCCUPANCY}_mib"] = held / 2**20
        return reading


def _number(path: Path) -> float | None:
    """None where it is not there, or says `Unavailable` or `Error`."""
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
