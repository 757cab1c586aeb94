"""Limits and use of this process's control group: version 1, version 2, or both (hybrid).

/proc/self/cgroup and /proc/self/mounts say which hierarchy holds a controller, so that one bound to
version 1 is not looked for in version 2.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forerun.data.collectors.system.counters import Reading
from forerun.data.collectors.system.procfs import Source, pressure

MIB = 2.0**20
V1_UNLIMITED = 2.0**60
"""Version 1 writes a number of this size where there is no limit."""


@dataclass(frozen=True)
class Layout:
    """Where this process's groups are.

    Attributes:
        version: `v1`, `v2`, `hybrid`, or `none`.
        folders: controller -> folder of version 1; `unified` -> that of version 2.
    """

    version: str
    folders: Mapping[str, str]


def layout(mounts: str, membership: str) -> Layout:
    """The layout of a process's groups.

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
    controllers = set(folders) - {"unified"}
    bound = {name for name in controllers if not name.startswith("name=")}
    if "unified" in folders:
        return Layout("hybrid" if bound else "v2", folders)
    return Layout("v1" if bound else "none", folders)


def sources(found: Layout) -> tuple[Source, ...]:
    """Files to read under that layout; some may not be there, as in the root group."""
    listed = []
    for controller, name, parse in V1_FILES:
        if controller in found.folders:
            listed.append(_source("v1", found.folders[controller], name, parse))
    for bound, name, parse in V2_FILES:
        if "unified" in found.folders and not set(bound) & set(found.folders):
            listed.append(_source("v2", found.folders["unified"], name, parse))
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


def group_pressure(resource: str) -> Callable[[str], Reading]:
    """`RESOURCE.pressure` of version 2."""
    parse = pressure(resource)

    def parse_group(text: str) -> Reading:
        found = parse(text)
        return Reading(
            {f"cgroup.{name}": value for name, value in found.cumulative.items()},
            {f"cgroup.{name}": value for name, value in found.gauges.items()},
        )

    return parse_group


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
    ((), "cpu.pressure", group_pressure("cpu")),
    ((), "io.pressure", group_pressure("io")),
    ((), "memory.pressure", group_pressure("memory")),
)
"""Controllers of version 1 that, where they are bound, hold the same; name; parser."""


def _source(version: str, folder: str, name: str, parse: Callable[[str], Reading]) -> Source:
    return Source(f"cgroup {version} {name}", f"{folder.lstrip('/')}/{name}", parse)


def _join(mount: str, path: str) -> str:
    return mount if path.strip("/") == "" else f"{mount.rstrip('/')}/{path.strip('/')}"


def _pairs(text: str) -> list[tuple[str, float]]:
    words = (line.split() for line in text.splitlines())
    return [(w[0], float(w[1])) for w in words if len(w) == 2 and w[1].isdigit()]
