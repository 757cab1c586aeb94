"""Co-located programs with a known truth: what slows each, and the metrics of the host."""

from dataclasses import dataclass

import numpy as np

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile

GUEST = Device(name="guest", vendor="nobody", kind="vm")
METRICS = ("cpu.user_share", "pressure.cpu.some_share", "probe.latency_ns", "probe.evicted")


@dataclass(frozen=True)
class Program:
    """How a program shows itself alone, and what it suffers from."""

    family: str
    cpu: float
    cache: float
    fears_cpu: float
    fears_cache: float


PROGRAMS = {
    "spin": Program("compute", 1.0, 0.0, 0.6, 0.0),
    "matrix": Program("compute", 1.0, 0.1, 0.6, 0.1),
    "chase": Program("cache", 0.9, 0.3, 0.0, 1.6),
    "table": Program("cache", 0.8, 0.4, 0.1, 1.2),
    "sweep": Program("memory", 0.9, 0.5, 0.0, 0.3),
}
NEIGHBOURS = {
    "none": (0.0, 0.0),
    "cpu": (0.9, 0.0),
    "cache": (0.4, 0.5),
    "stream": (0.6, 0.3),
    "victim:chase": (0.9, 0.3),
}


def host(cpu: float, cache: float) -> tuple[float, ...]:
    """What a host shows with that much of its CPUs and of its cache taken."""
    return (cpu, min(1.0, 0.45 * cpu), 20.0 * np.exp(1.5 * cache), min(1.0, cache))


def profile(name: str, *, measured_with_cache: bool = False) -> ProgramProfile:
    """A program alone, and, where asked, what all of the cache's load did to it."""
    known = PROGRAMS[name]
    alone = HostWindow(METRICS, (host(known.cpu, known.cache),))
    empty = HostWindow(METRICS, (host(0.0, 0.0),))
    with_cache = truth(name, "cache")[0] if measured_with_cache else None
    size, share = 64.0 * known.cache, known.cpu
    return ProgramProfile(name, alone, empty, size, share, p_cpu_beside_cache=with_cache)


def truth(name: str, neighbour: str, much: float = 1.0) -> tuple[float, float]:
    """P of CPU and of wall time without noise, co-located with so much of a neighbour."""
    known, (cpu, cache) = PROGRAMS[name], NEIGHBOURS[neighbour]
    in_cpu = float(np.exp(-much * known.fears_cache * cache))
    return in_cpu, in_cpu * float(np.exp(-much * known.fears_cpu * cpu))


def colocations(
    repeats: int = 6,
    seconds: int = 3,
    noise: float = 0.02,
    seed: int = 0,
    *,
    measured_with_cache: bool = False,
) -> Measurements:
    """Every program with every neighbour, some repeats each."""
    draw = np.random.default_rng(seed)
    queries, measured, keys = [], [], []
    for name, known in PROGRAMS.items():
        mine = profile(name, measured_with_cache=measured_with_cache)
        for neighbour, (cpu, cache) in NEIGHBOURS.items():
            for _ in range(repeats):
                much = draw.uniform(0.3, 1.0)
                shown = np.array(host(known.cpu + much * cpu, known.cache + much * cache))
                jitter = 1.0 + noise * draw.standard_normal((seconds, len(METRICS)))
                window = HostWindow(METRICS, tuple(map(tuple, (shown * jitter).tolist())))
                queries.append(Query(Colocation(mine, window), GUEST))
                exact = np.array(truth(name, neighbour, much))
                measured.append(exact * np.exp(noise * draw.standard_normal(2)))
                keys.append((name, known.family, neighbour))
    columns = np.array(keys, dtype=np.str_).T
    groups = dict(zip(("program", "family", "neighbour"), columns, strict=True))
    groups["repeated"] = np.char.add(columns[0], columns[2])
    p_cpu, p_wall = np.array(measured).T
    return Measurements(queries, {"p_cpu": p_cpu, "p_wall": p_wall}, groups)
