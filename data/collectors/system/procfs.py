"""Parsers of the files under /proc that describe the whole machine.

Times are in seconds, sizes in bytes, memory in MiB. Parsers are pure and skip lines that they do
not understand, so that another kernel's fields are missing rather than wrong.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from forerun.data.collectors.system.counters import Reading

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


def pressure(resource: str) -> Callable[[str], Reading]:
    """/proc/pressure/RESOURCE: seconds stalled, and the kernel's own average over 10 s."""

    def parse(text: str) -> Reading:
        reading = Reading()
        for line in text.splitlines():
            kind, *pairs = line.split()
            values = dict(pair.partition("=")[::2] for pair in pairs)
            name = f"pressure.{resource}.{kind}"
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
        for field, word in zip(DISK_FIELDS, words[3:], strict=False):
            scale = SECTOR if field.endswith("bytes") else 1e-3 if field.endswith("_s") else 1.0
            total[field] = total.get(field, 0.0) + scale * float(word)
    queue = {"disk.in_flight": total.pop("in_flight")} if total else {}
    return Reading({f"disk.{field}": value for field, value in total.items()}, queue)


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
            for field, word in zip(NET_FIELDS, part, strict=True):
                name = f"{where}.{direction}_{field}"
                found[name] = found.get(name, 0.0) + float(word)
    return Reading(found)


def schedstat(text: str) -> Reading:
    """/proc/schedstat: seconds that tasks ran and waited to run, by CPU and in all."""
    found: dict[str, float] = {}
    for key, values in _fields(text):
        if not re.fullmatch(r"cpu\d+", key) or len(values) < 9:
            continue
        parts = {"run_s": values[6] / 1e9, "wait_s": values[7] / 1e9, "slices": values[8]}
        for field, value in parts.items():
            found[f"sched.{key}.{field}"] = value
            found[f"sched.{field}"] = found.get(f"sched.{field}", 0.0) + value
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
