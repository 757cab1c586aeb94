"""Queries about the programs of a host, and the metrics of the host once a candidate runs there.

The metrics after placement are forecast from profiles (`forerun.models.colocation.host_forecast`).
The forecast starts from the current metrics, where the request gives them, and adds the candidate;
otherwise it starts from an idle host and adds all programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite, nan
from statistics import median

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.models.colocation.base import ColocationBase
from forerun.models.colocation.host_forecast import demand, granted
from forerun.service.schemas.colocation import HostIn, ProgramIn, WindowIn

GUEST = Software()
GUEST_DEVICE = Device(name="guest", vendor="unknown", kind="vm")
BUSY_METRICS = ("cpu.user_share", "cpu.nice_share", "cpu.system_share", "cpu.steal_share")
IDLE_METRIC = "cpu.idle_share"
CPU_METRICS = (*BUSY_METRICS, IDLE_METRIC, "cpu.iowait_share")
TRAINING_CPUS = 2.0
"""CPUs of the guest on which all co-located runs of the training set were measured."""
MIN_UNATTRIBUTED_CPUS = 0.1
"""Fewest busy CPUs, unexplained by the residents, that count as further programs."""
MAX_UNATTRIBUTED_PER_CPU = 32
"""Upper bound on such programs per CPU, because the metrics in a request may have any value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate on one host.

    Attributes:
        programs: the candidate, then the residents.
        queries: one about each of the programs.
        current: current metrics of the host; None where the request gives none.
    """

    programs: Sequence[ProgramIn]
    queries: Sequence[Query]
    current: HostWindow | None

    @property
    def is_isolated(self) -> bool:
        """Whether the candidate is alone on an idle host."""
        return len(self.programs) == 1 and self.current is None


def placements(
    candidate: ProgramIn, hosts: Sequence[HostIn], part: ColocationBase
) -> list[Placement]:
    """The candidate on each of n hosts, whose metrics are forecast in one pass."""
    profile = profile_of(candidate)
    profiles = [[profile, *map(profile_of, host.residents)] for host in hosts]
    programs = [[candidate, *host.residents] for host in hosts]
    currents = [current_window(host) for host in hosts]
    added = [None if current is None else 1 for current in currents]
    windows = part.mixing.forecasts(
        [own[:count] for own, count in zip(profiles, added, strict=True)],
        [current or part.idle for current in currents],
        part.idle,
        [[p.threads for p in own[:count]] for own, count in zip(programs, added, strict=True)],
    )
    placed = []
    for own, own_profiles, host, current, window in zip(
        programs, profiles, hosts, currents, windows, strict=True
    ):
        shares = _granted(own, own_profiles, _cpu_shares(current), host.cpus)
        queries = [
            Query(
                Colocation(each, window, True, share, program.reference_ratio), GUEST_DEVICE, GUEST
            )
            for program, each, share in zip(own, own_profiles, shares, strict=True)
        ]
        placed.append(Placement(own, queries, current))
    return placed


def _granted(
    programs: Sequence[ProgramIn],
    profiles: Sequence[ProgramProfile],
    shares: Mapping[str, float],
    cpus: int | None,
) -> list[float]:
    """Share of its isolated CPU time that each of n programs will get on a host.

    CPU time in use that the residents do not explain is attributed to further programs.

    Args:
        programs: the candidate, then the residents.
        profiles: of these programs.
        shares: current medians of the host's CPU times by kind, CPUs.
        cpus: CPUs of the host; None where the request does not say.
    """
    demands = [demand(profile) for profile in profiles]
    threads = [program.threads for program in programs]
    explained = sum(d * n for d, n in zip(demands[1:], threads[1:], strict=True))
    unattributed = sum(shares.get(name, 0.0) for name in BUSY_METRICS) - explained
    available = float(cpus) if cpus is not None else _cpus(shares)
    most = MAX_UNATTRIBUTED_PER_CPU * ceil(available)
    count = int(min(max(ceil(unattributed - MIN_UNATTRIBUTED_CPUS), 0), most))
    others = ([unattributed / count], [count]) if count else ([], [])
    together = granted(demands + others[0], available, threads + others[1])
    # Threads of one program compete for CPUs even in isolation; neighbours do not cause that part.
    isolated = [min(1.0, available / n / d) for d, n in zip(demands, threads, strict=True)]
    return [share / alone for share, alone in zip(together.tolist(), isolated, strict=False)]


def _cpus(shares: Mapping[str, float]) -> float:
    """CPUs of a host: the sum of its CPU times where all are known, else `TRAINING_CPUS`."""
    return max(1.0, float(round(sum(shares.values())))) if IDLE_METRIC in shares else TRAINING_CPUS


def _cpu_shares(current: HostWindow | None) -> dict[str, float]:
    """Current median of each kind of CPU time, in CPUs (1 is one CPU)."""
    shares: dict[str, float] = {}
    if current is None:
        return shares
    for column, name in enumerate(current.metrics):
        if name in CPU_METRICS:
            known = [second[column] for second in current.seconds if isfinite(second[column])]
            shares |= {name: median(known)} if known else {}
    return shares


def profile_of(program: ProgramIn) -> ProgramProfile:
    """The profile of a program as predictors receive it."""
    return ProgramProfile(
        program.name,
        _medians(program.alone),
        HostWindow(),
        program.working_set_mib,
        program.cpu_share,
        program.cpu_spread,
        program.p_cpu_beside_cache,
    )


def current_window(host: HostIn) -> HostWindow | None:
    """The current metrics of a host; None where the request gives none."""
    if host.window is not None and host.window.seconds:
        return window_of(host.window)
    return _medians(host.metrics) if host.metrics else None


def _medians(metrics: Mapping[str, float]) -> HostWindow:
    return HostWindow(tuple(metrics), (tuple(metrics.values()),) if metrics else ())


def window_of(given: WindowIn) -> HostWindow:
    """The window of a request as predictors receive it; a missing value is NaN."""
    seconds = [
        tuple(nan if value is None else float(value) for value in second)
        for second in given.seconds
    ]
    return HostWindow(tuple(given.metrics), tuple(seconds) if given.metrics else ())
