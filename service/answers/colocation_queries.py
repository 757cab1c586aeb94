"""Queries about the programs of a host, and the metrics of the host once a candidate runs there.

The metrics after placement are forecast from profiles (`forerun.models.colocation.host_forecast`).
The forecast starts from the current metrics, where the request gives them, and adds the candidate;
otherwise it starts from an idle host and adds all programs.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain

import numpy as np

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.models.colocation.base import ColocationBase
from forerun.models.colocation.host_forecast import demand, granted
from forerun.service.schemas.colocation import HostIn, ProgramIn, WindowIn

GUEST_DEVICE = Device(name="guest", vendor="unknown", kind="vm")
BUSY_METRICS = ("cpu.user_share", "cpu.nice_share", "cpu.system_share", "cpu.steal_share")
IDLE_METRIC = "cpu.idle_share"
FREE_METRICS = (IDLE_METRIC, "cpu.iowait_share")
TRAINING_CPUS = 2.0
"""CPUs of the guest on which all co-located runs of the training set were measured."""
MIN_UNATTRIBUTED_CPUS = 0.1
"""Fewest busy CPUs, unexplained by the residents, that count as further programs."""
MAX_UNATTRIBUTED_PER_CPU = 32
"""Upper bound on such programs per CPU, because the metrics in a request may have any value."""


def forecast_window(candidate: ProgramIn, host: HostIn, part: ColocationBase) -> HostWindow:
    """The forecast metrics of a host once the candidate runs there."""
    current = current_window(host)
    added = [candidate] if current is not None else [candidate, *host.residents]
    profiles = [profile_of(program) for program in added]
    threads = [program.threads for program in added]
    return part.mixing.together(profiles, current or part.idle, part.idle, threads)


def colocation_queries(
    programs: Sequence[ProgramIn], host: HostIn, window: HostWindow
) -> list[Query]:
    """Queries about the programs of a host, each with the share of CPU time that it will get.

    CPU time in use that the residents do not explain is attributed to further programs.
    """
    profiles = [profile_of(program) for program in programs]
    demands = [
        [demand(profile)] * program.threads
        for profile, program in zip(profiles, programs, strict=True)
    ]
    unattributed = _busy(host) - sum(map(sum, demands[1:]))
    cpus = _cpus(host)
    count = int(
        np.clip(
            np.ceil(unattributed - MIN_UNATTRIBUTED_CPUS),
            0,
            MAX_UNATTRIBUTED_PER_CPU * np.ceil(cpus),
        )
    )
    others = [unattributed / count] * count if count else []
    shares = granted([*chain(*demands), *others], cpus)
    # Threads of one program compete for CPUs even in isolation; neighbours do not cause that part.
    isolated_shares = [float(granted(demand_of, cpus)[0]) for demand_of in demands]
    first = accumulate((program.threads for program in programs), initial=0)
    return [
        Query(
            Colocation(profile, window, True, shares[index] / isolated, program.reference_ratio),
            GUEST_DEVICE,
        )
        for program, profile, index, isolated in zip(
            programs, profiles, first, isolated_shares, strict=False
        )
    ]


def _busy(host: HostIn) -> float:
    """CPUs in use now; 0 where the request does not give the metrics."""
    return sum(_shares(host).get(name, 0.0) for name in BUSY_METRICS)


def _cpus(host: HostIn) -> float:
    """CPUs of a host: as given, else the sum of its CPU metrics, else `TRAINING_CPUS`."""
    if host.cpus is not None:
        return float(host.cpus)
    shares = _shares(host)
    return max(1.0, float(round(sum(shares.values())))) if IDLE_METRIC in shares else TRAINING_CPUS


def _shares(host: HostIn) -> dict[str, float]:
    """Current median of each kind of CPU time, in CPUs (1 is one CPU)."""
    current = current_window(host)
    if current is None:
        return {}
    shares = {}
    for column, name in enumerate(current.metrics):
        known = [second[column] for second in current.seconds if np.isfinite(second[column])]
        if name in (*BUSY_METRICS, *FREE_METRICS) and known:
            shares[name] = float(np.median(known))
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
        tuple(np.nan if value is None else float(value) for value in second)
        for second in given.seconds
    ]
    return HostWindow(tuple(given.metrics), tuple(seconds) if given.metrics else ())
