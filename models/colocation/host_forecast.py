"""Forecasts a host's metrics with co-located programs from the programs' profiles.

Each program changes a metric as it changed that of an idle host when it ran alone, times a mixing
weight. The weights, one per metric, are fitted on pairs of profiled programs (1 without pairs).
Changes are added in the units of `features.host_windows.level`, so that shares of time add up and
latencies multiply. Metrics of a single program, such as its own CPU time, are not forecast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names, Positions
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import (
    HOST_METRICS,
    NAMES,
    PINNED,
    level,
    levels,
    window_values,
    windows_of,
)


def idle_window(queries: Sequence[Query]) -> HostWindow:
    """Metrics of a host without any program, as a window of one second.

    They are medians over profiles of the host without the program. A metric missing in all of these
    is estimated from programs that ran alone, by the 10 % quantile of their medians (90 % for a
    metric that falls under load).
    """
    profiles = {q.workload.profile for q in queries if isinstance(q.workload, Colocation)}
    names = sorted({name for p in profiles for name in p.alone.metrics})
    values = []
    for name in names:
        empty = _medians([p.without for p in profiles], name)
        known = empty or _medians([p.alone for p in profiles], name)
        percentile = 90.0 if name in HOST_METRICS and HOST_METRICS[name].falls else 10.0
        percentile = 50.0 if empty else percentile
        values.append(float(np.percentile(known, percentile)) if known else float("nan"))
    return HostWindow(tuple(names), (tuple(values),) if names else ())


def _medians(windows: Sequence[HostWindow], name: str) -> list[float]:
    """Median over time of one metric in each window that has it."""
    having = [window for window in windows if name in window.metrics and window.seconds]
    columns = [np.array(window.seconds)[:, window.metrics.index(name)] for window in having]
    return [float(np.nanmedian(column)) for column in columns if not np.isnan(column).all()]


PAIR = "victim:"
"""Prefix of the names of neighbours that are themselves profiled programs."""
OWN = ("task.", *PINNED)
"""Prefixes of metrics that describe a single program rather than its host."""
PRIOR_PAIRS = 5.0
"""Pseudo-observations with a weight of 1, which shrink mixing weights towards 1."""
MOST_WEIGHT = 1.5
"""Upper limit of a mixing weight."""
_LEAST_DEMAND = 1e-3
_PRIVATE = np.array([name.startswith(OWN) for name in NAMES])


@dataclass(frozen=True)
class Mixing:
    """Mixing weights that combine profiles.

    Attributes:
        weights: metric -> share of its isolated change that a program adds next to others.
        pairs: number of runs that the weights were fitted to.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    pairs: int = 0

    @classmethod
    def fit(cls, change: Matrix, added: Matrix) -> Self:
        """Fit least squares per metric through the origin, shrunk towards 1 by PRIOR_PAIRS.

        Args:
            change: metrics of a run less those of the program alone, shape (n, len(NAMES)).
            added: metrics of the neighbour alone less those of its idle host, same shape.
        """
        weights = {}
        for column, name in enumerate(NAMES):
            known = np.isfinite(change[:, column]) & np.isfinite(added[:, column])
            x, y = added[known, column], change[known, column]
            size = float(x @ x)
            if size > 1e-12:
                prior = PRIOR_PAIRS * size / len(x)
                weights[name] = float(np.clip((x @ y + prior) / (size + prior), 0.0, MOST_WEIGHT))
        return cls(weights, len(change))

    def together(
        self,
        programs: Sequence[ProgramProfile],
        host: HostWindow,
        idle: HostWindow,
        threads: Sequence[int] = (),
    ) -> HostWindow:
        """Forecast a host's metrics once these programs run on it as well.

        Args:
            programs: profiles of the programs to add.
            host: its metrics now; missing ones are taken from an idle host.
            idle: metrics of an idle host.
            threads: number of threads of each program, each of which adds as much as the program
                alone; one each if empty.

        Returns:
            A window of one second.
        """
        return self.forecasts([programs], [host], idle, [threads or [1] * len(programs)])[0]

    def forecasts(
        self,
        programs: Sequence[Sequence[ProgramProfile]],
        hosts: Sequence[HostWindow],
        idle: HostWindow,
        threads: Sequence[Sequence[int]],
    ) -> list[HostWindow]:
        """Forecasts of n hosts as in `together`, computed in one pass.

        Args:
            programs: per host, profiles of the programs to add.
            hosts: current metrics of each host.
            idle: metrics of an idle host.
            threads: per host, the number of threads of each program to add.
        """
        weight = np.array([self.weights.get(name, 1.0) for name in NAMES])
        base, alone = levels(hosts), level(idle)
        base = np.where(np.isnan(base), alone, base)
        profiles, counts = list(chain(*programs)), np.array([*chain(*threads)], dtype=np.float64)
        change = levels([p.alone for p in profiles]) - _without(profiles, alone)
        added = np.zeros_like(base)
        host_of = np.repeat(np.arange(len(hosts)), [len(group) for group in programs])
        np.add.at(added, host_of, np.nan_to_num(counts[:, None] * weight * change))
        return windows_of(np.where(_PRIVATE, np.nan, base + added))


def pairs_of(
    runs: Sequence[Colocation], neighbours: Names
) -> tuple[Positions, list[ProgramProfile]]:
    """Positions of runs whose neighbour is a program with a profile, and those profiles."""
    profiles = {run.profile.program: run.profile for run in runs}
    pairs = [
        (row, profiles[name.removeprefix(PAIR)])
        for row, name in enumerate(map(str, neighbours))
        if name.startswith(PAIR) and name.removeprefix(PAIR) in profiles
    ]
    return np.array([row for row, _ in pairs], dtype=np.intp), [profile for _, profile in pairs]


def granted(demands: Sequence[float], cpus: float, threads: Sequence[int] = ()) -> Column:
    """Share of its demand that each of n programs is granted under max-min fairness.

    No thread gets less than an equal share of what threads with lower demand leave.

    Args:
        demands: CPUs that each thread of a program demands, above 0.
        cpus: number of shared CPUs.
        threads: number of threads of each program; one each if empty.

    Returns:
        Shares of at most 1, shape (n,).
    """
    counts = threads or [1] * len(demands)
    left, waiting, most = cpus, sum(counts), float("inf")
    for demanded, count in sorted(zip(demands, counts, strict=True)):
        if demanded * waiting >= left:
            most = left / waiting
            break
        left, waiting = left - demanded * count, waiting - count
    return np.array([min(1.0, most / demanded) for demanded in demands])


def put_together(
    runs: Sequence[Colocation], neighbours: Names, cpus: Column, idle: HostWindow, mixing: Mixing
) -> tuple[Positions, list[Colocation]]:
    """Replace the measured window by a forecast in runs next to profiled programs.

    Args:
        runs: n runs.
        neighbours: name of each run's neighbour, shape (n,).
        cpus: number of CPUs that each program and its neighbour share, shape (n,).
        idle: metrics of an idle host.
        mixing: mixing weights; to evaluate them, fit them to other runs.

    Returns:
        Positions of those runs, and the runs with a window combined from the two profiles.
    """
    rows, neighbour_profiles = pairs_of(runs, neighbours)
    forecasts = []
    for row, neighbour in zip(rows, neighbour_profiles, strict=True):
        profile = runs[row].profile
        window = mixing.together([profile, neighbour], idle, idle)
        share = float(granted([demand(profile), demand(neighbour)], cpus[row])[0])
        forecasts.append(replace(runs[row], window=window, estimated=True, granted=share))
    return rows, forecasts


def demand(profile: ProgramProfile) -> float:
    """CPUs that a program demands: its share of a CPU alone, or 1 if unknown."""
    return max(_LEAST_DEMAND, 1.0 if profile.cpu_share is None else profile.cpu_share)


def forecast_queries(
    queries: Sequence[Query], neighbours: Names, cpus: Column, idle: HostWindow
) -> tuple[Positions, list[Query]]:
    """Use a forecast window in every query whose neighbour is a profiled program.

    The mixing weights for each neighbour are fitted to runs next to all other neighbours.

    Args:
        queries: n queries about measured runs.
        neighbours: name of each run's neighbour, shape (n,).
        cpus: number of CPUs that each program and its neighbour share, shape (n,).
        idle: metrics of an idle host.

    Returns:
        Positions of the changed queries in increasing order, and all n queries.
    """
    runs = [query.colocation for query in queries]
    forecasts = list(queries)
    for name in np.unique(neighbours):
        mixing = mixing_of(runs, np.where(neighbours == name, "", neighbours), idle)
        only = np.where(neighbours == name, neighbours, "")
        for row, workload in zip(*put_together(runs, only, cpus, idle, mixing), strict=True):
            forecasts[row] = replace(forecasts[row], workload=workload)
    rows, _ = pairs_of(runs, neighbours)
    return rows, forecasts


def mixing_of(runs: Sequence[Colocation], neighbours: Names, idle: HostWindow) -> Mixing:
    """Fit mixing weights to the runs next to profiled programs.

    Args:
        runs: n runs.
        neighbours: name of each run's neighbour, shape (n,).
        idle: metrics of an idle host.
    """
    rows, profiles = pairs_of(runs, neighbours)
    measured = [i for i, row in enumerate(rows) if len(window_values(runs[row].window))]
    if not measured:
        return Mixing()
    victims = levels([runs[rows[i]].profile.alone for i in measured])
    change = levels([runs[rows[i]].window for i in measured]) - victims
    neighbours_alone = [profiles[i] for i in measured]
    added = levels([p.alone for p in neighbours_alone]) - _without(neighbours_alone, level(idle))
    return Mixing.fit(change, added)


def _without(programs: Sequence[ProgramProfile], idle: Column) -> Matrix:
    """Metrics of each program's host without the program, shape (n, len(NAMES))."""
    metrics = levels([program.without for program in programs])
    return np.where(np.isnan(metrics), idle, metrics)
