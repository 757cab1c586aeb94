"""Forecast of a host's metrics with co-located programs, combined from the programs' profiles.

Each program changes a metric by as much as it changed that of an idle host when it ran alone, times
a mixing weight. The weights are fitted on pairs of programs with profiles, one per metric (1 where
there are none). Changes are added in the units of `features.host_windows.level`, so that shares of
time add up and latencies multiply. Metrics of a single program, such as its own CPU time, are not
forecast.
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

    They are the medians over profiles of the host without the program. A metric that no profile has
    so is estimated from programs that ran alone, by the 10 % quantile of their medians (90 % for a
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
    columns = [np.array(own.seconds)[:, own.metrics.index(name)] for own in having]
    return [float(np.nanmedian(column)) for column in columns if not np.isnan(column).all()]


PAIR = "victim:"
"""Prefix in the names of neighbours that are programs with profiles of their own."""
OWN = ("task.", *PINNED)
"""Prefixes of the metrics that describe a single program and not its host."""
PRIOR_PAIRS = 5.0
"""Pseudo-observations with a weight of 1, which shrink fitted mixing weights towards 1."""
MOST_WEIGHT = 1.5
"""Upper limit of a mixing weight."""
_LEAST_DEMAND = 1e-3
_PRIVATE = np.array([name.startswith(OWN) for name in NAMES])


@dataclass(frozen=True)
class Mixing:
    """How profiles combine.

    Attributes:
        weights: metric -> share of its change alone that a program adds next to others.
        pairs: number of runs that the weights were fitted on.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    pairs: int = 0

    @classmethod
    def fit(cls, change: Matrix, added: Matrix) -> Self:
        """Least squares per metric through the origin, shrunk towards 1 by PRIOR_PAIRS.

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
        """Forecast of a host's metrics once these programs run on it as well.

        Args:
            programs: profiles of the programs to add.
            host: its metrics now; those of an idle host are taken where they are missing.
            idle: metrics of an idle host.
            threads: number of each program's threads, each of which adds as much as the program
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
        """Forecasts of n hosts as by `together`, computed in one pass.

        Args:
            programs: of each host, profiles of the programs to add.
            hosts: metrics of each host now.
            idle: metrics of an idle host.
            threads: of each host, the number of threads of each program to add.
        """
        weight = np.array([self.weights.get(name, 1.0) for name in NAMES])
        base, alone = levels(hosts), level(idle)
        base = np.where(np.isnan(base), alone, base)
        profiles, counts = list(chain(*programs)), np.array([*chain(*threads)], dtype=np.float64)
        change = levels([p.alone for p in profiles]) - _without(profiles, alone)
        added = np.zeros_like(base)
        host_of = np.repeat(np.arange(len(hosts)), [len(own) for own in programs])
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

    No thread gets less than an equal share of what is left by threads that demand less.

    Args:
        demands: CPUs that each thread of a program demands, above 0.
        cpus: number of CPUs that they share.
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
    """Runs next to programs with profiles, with a forecast in place of the measured window.

    Args:
        runs: n runs.
        neighbours: name of each run's neighbour, shape (n,).
        cpus: number of CPUs that each program and its neighbour share, shape (n,).
        idle: metrics of an idle host.
        mixing: how profiles combine; to evaluate it, fit it on other runs.

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
    """CPUs that a program demands: the share of a CPU it had alone, or 1 if that is unknown."""
    return max(_LEAST_DEMAND, 1.0 if profile.cpu_share is None else profile.cpu_share)


def forecast_queries(
    queries: Sequence[Query], neighbours: Names, cpus: Column, idle: HostWindow
) -> tuple[Positions, list[Query]]:
    """Queries with a forecast window wherever the neighbour is a program with a profile.

    The mixing weights for each neighbour are fitted on runs next to all other neighbours.

    Args:
        queries: n queries about measured runs.
        neighbours: name of each run's neighbour, shape (n,).
        cpus: number of CPUs that each program and its neighbour share, shape (n,).
        idle: metrics of an idle host.

    Returns:
        Positions of the changed queries in rising order, and all n queries.
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
    """Mixing weights fitted on the runs next to programs with profiles.

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
    """Metrics of each program's host without it, shape (n, len(NAMES))."""
    metrics = levels([program.without for program in programs])
    return np.where(np.isnan(metrics), idle, metrics)
