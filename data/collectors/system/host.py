"""The measuring machine: processor, limits, load of others, memory of this process, energy.

Energy is that of RAPL counters, as Linux exposes them under /sys/class/powercap. Counters of
packages are summed; those of cores and graphics are parts of them and are left out; memory (`dram`)
is counted separately where present. A counter wraps at `max_energy_range_uj`.
"""

import ctypes
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from forerun.data.collectors.system.procfs import CPU_TIMES, MIB, V1_UNLIMITED, group_folders, stat

ROOT = Path("/")


def cpu_model(root: Path = ROOT) -> str:
    """The processor's own name; its architecture where it gives none."""
    named = fields_of(root / "proc/cpuinfo").get("model name")
    return named or platform.processor() or platform.machine()


def instruction_set(root: Path = ROOT) -> str | None:
    """The widest vectors that runtimes use: `avx512-vnni`, `avx512`, `avx2`, `neon`, ...

    None where it is unknown.
    """
    cpu = fields_of(root / "proc/cpuinfo")
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    known = {"avx512_vnni": "avx512-vnni", "avx512f": "avx512", "avx2": "avx2", "avx": "avx"}
    known |= {"sve": "sve", "asimd": "neon"}
    return next((name for flag, name in known.items() if flag in flags), None)


def cpu_vendor(root: Path = ROOT) -> str:
    """`intel`, `amd`, `arm`, ... ; `unknown` where the processor does not say."""
    found = fields_of(root / "proc/cpuinfo").get("vendor_id")
    if found:
        return {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(found, found.lower())
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
    folders = {n: root / path.lstrip("/") for n, path in group_folders(mounts, own).items()}
    unified, cpu, memory = (folders.get(name) for name in ("unified", "cpu", "memory"))
    quota, period, most = "", "", ""
    if unified is not None:
        quota, _, period = text_of(unified / "cpu.max").partition(" ")
        most = text_of(unified / "memory.max")
    if cpu is not None:
        quota, period = (text_of(cpu / "cpu.cfs_quota_us"), text_of(cpu / "cpu.cfs_period_us"))
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
    found = (mib_in(root / "proc/meminfo", "MemTotal"), cgroup_limits(root)["cgroup_memory_mib"])
    sizes = [size / 1024 for size in found if size is not None]
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
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def fields_of(file: Path) -> dict[str, str]:
    """Name -> value, of lines such as `name: value`; empty where the file cannot be read."""
    pairs = (line.partition(":") for line in text_of(file).splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def mib_in(file: Path, name: str) -> float | None:
    """A field that is given in kB, MiB; None where there is none."""
    words = fields_of(file).get(name, "").split()
    return int(words[0]) / 1024 if words else None


BUSY_SHARE = 0.25
"""Share of the processors in use by others from which on a measurement counts as disturbed:
measured on two processors, where a neighbour on the other one slowed small networks by a tenth at
this share."""
STOLEN_SHARE = 0.03
"""Share of time stolen by a hypervisor from which on a measurement counts as disturbed."""
LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Ticks:
    """Counts since the machine started, in ticks of all processors.

    Attributes:
        busy: ticks in which any process ran.
        stolen: ticks in which a hypervisor ran another guest while a process was ready.
        total: ticks of all kinds, idle ones included.
        own: ticks of this process and of children that it has waited for.
    """

    busy: float
    stolen: float
    total: float
    own: float


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """What others took over an interval.

    Attributes:
        busy_share: share of all processors' time in use, without this process and its children.
        stolen_share: share of all processors' time taken by a hypervisor.
    """

    busy_share: float
    stolen_share: float

    @property
    def disturbs(self) -> bool:
        """Whether times measured in this interval are doubtful."""
        return self.busy_share > BUSY_SHARE or self.stolen_share > STOLEN_SHARE

    @classmethod
    def between(cls, before: Ticks, after: Ticks) -> "OtherLoad":
        """Load between two readings; zero shares where no time went by."""
        total = after.total - before.total
        if total <= 0:
            return cls(0.0, 0.0)
        others = (after.busy - before.busy) - (after.own - before.own)
        stolen = after.stolen - before.stolen
        return cls(max(0.0, others / total), max(0.0, stolen / total))


def read_ticks(root: Path = ROOT) -> Ticks | None:
    """A reading of /proc/stat; None where the system has none."""
    counted = stat(text_of(root / "proc/stat"), 1.0).cumulative
    counts = [counted[name] for kind in CPU_TIMES if (name := f"cpu.{kind}_s") in counted]
    if len(counts) < len(CPU_TIMES):
        return None
    user, nice, system, idle, waiting, hard, soft, stolen = counts
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    busy = user + nice + system + hard + soft
    return Ticks(busy, stolen, busy + idle + waiting + stolen, own * os.sysconf("SC_CLK_TCK"))


@dataclass
class QuietWait:
    """Waits until other processes leave the processors idle, up to a limit in all.

    Attributes:
        left_s: seconds that may still be waited.
        waited_s: seconds waited so far.
        most_s: longest single wait, seconds.
        read: takes a reading; returns None where the system has none.
        sleep: waits for some seconds.
    """

    left_s: float = 20.0
    waited_s: float = 0.0
    most_s: float = 5.0
    read: Callable[[], Ticks | None] = read_ticks
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> OtherLoad | None:
        """Wait for a quiet quarter of a second; the last reading, None where there is none."""
        gone = 0.0
        while (before := self.read()) is not None:
            self.sleep(LOOK_S)
            after = self.read()
            if after is None:
                return None
            seen = OtherLoad.between(before, after)
            if not seen.disturbs or gone + LOOK_S > min(self.most_s, self.left_s):
                return seen
            gone += LOOK_S
            self.waited_s += LOOK_S
            self.left_s -= LOOK_S
        return None


STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def resident_mib() -> float | None:
    """Resident memory of this process now, MiB; None where the system does not report it."""
    return mib_in(STATUS, "VmRSS")


def peak_mib() -> float | None:
    """Peak of resident memory since the start or since `forget_peak`, MiB."""
    found = mib_in(STATUS, "VmHWM")
    if found is not None or sys.platform == "win32":
        return found
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 2**10


def forget_peak() -> bool:
    """Return free memory and reset the peak; whether the system allows it."""
    gc.collect()
    # Only glibc has this function.
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Domain:
    """One counter.

    Attributes:
        name: `package-0`, `dram`, ...
        counter: file with microjoules.
        range_uj: value after which it starts from 0.
    """

    name: str
    counter: Path
    range_uj: int

    def read_uj(self) -> int:
        """The counter now, microjoules.

        Raises:
            OSError, ValueError: it cannot be read.
        """
        return int(self.counter.read_text())


@dataclass(frozen=True, slots=True)
class Rapl:
    """The counters of one machine.

    Attributes:
        domains: counters whose sum is the machine's processors, with memory where it is counted.
        reason: why there are none; empty where there are.
    """

    domains: tuple[Domain, ...]
    reason: str = ""

    @classmethod
    def find(cls, root: Path = POWERCAP) -> "Rapl":
        """Counters under `root`, once each, as far as this process may read them."""
        if not root.is_dir():
            return cls((), f"no energy counters: no {root}")
        domains: dict[str, Domain] = {}
        # An MMIO tree repeats the packages of the register one, which goes first.
        found = sorted(root.glob("intel-rapl*:*"), key=lambda path: ("mmio" in path.name, path))
        for folder in found:
            domain = _domain(folder)
            if domain is not None and domain.name not in domains:
                domains[domain.name] = domain
        if not domains:
            return cls((), f"no energy counters: no RAPL package in {root}")
        for counted in domains.values():
            try:
                counted.read_uj()
            except (OSError, ValueError) as error:
                why = type(error).__name__
                return cls((), f"energy counters cannot be read ({why}): {counted.counter}")
        return cls(tuple(domains.values()))

    def snapshot(self) -> dict[str, int]:
        """All counters now, microjoules."""
        return {domain.name: domain.read_uj() for domain in self.domains}

    def joules(self, before: Mapping[str, int], after: Mapping[str, int]) -> float:
        """Energy between two snapshots less than one wraparound apart.

        A package at 300 W takes 15 minutes to wrap 262 kJ, the least range that is shipped.
        """
        total = 0
        for domain in self.domains:
            gone = after[domain.name] - before[domain.name]
            total += gone if gone >= 0 else gone + domain.range_uj
        return total / 1e6


def _domain(folder: Path) -> Domain | None:
    """The domain of a folder if it counts towards the sum."""
    try:
        name = (folder / "name").read_text().strip()
        range_uj = int((folder / "max_energy_range_uj").read_text())
    except (OSError, ValueError):
        return None
    kind = name.split("-")[0]
    if kind == "dram":
        # Each package has a `dram` of its own: the parent distinguishes them.
        parent = folder.name.split(":")[1]
        return Domain(f"dram-{parent}", folder / "energy_uj", range_uj)
    return Domain(name, folder / "energy_uj", range_uj) if kind == "package" else None
