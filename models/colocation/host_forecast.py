"""Forecast of a host's metrics with co-located programs, combined from the programs' profiles.

Each program changes a metric by as much as it changed that of an idle host when it ran alone, times
a mixing weight. The weights are fitted on pairs of programs with profiles, one per metric (1 where
there are none). Changes are added in the units of `features.host_windows.level`, so that shares of
time add up and latencies multiply. Metrics of a single program, such as its own CPU time, are not
forecast.

Features of co-located programs, and an effect fitted for each program that was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self, TypeVar

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions, groups_of
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import (
    HOST_METRICS,
    NAMES,
    PINNED,
    level,
    levels,
    statistics_of,
    values_of,
    window_values,
    windows_of,
)
from forerun.models.conformal import weighted_quantile

T = TypeVar("T")
METRICS = ("p_cpu", "p_wall")
"""Relative speed in CPU time and in wall time: the time alone over the time with neighbours."""
FACTS = ("log_working_set", "cpu_share", "log_cpu_spread")
"""Columns of `ColocationRows.facts`: logarithm of a program's working set in MiB, its CPU time over
wall time alone, and logarithm of `ProgramProfile.cpu_spread`, the scatter of isolated CPU times."""
FEWEST_RUNS = 3
"""A program with fewer runs has no median and spread of its own."""
FEWEST_PROFILED = 3
"""A sensitivity proxy is used only if at least this many training programs have it."""
PRIOR_RUNS = 2.0
"""Pseudo-observations at the median and spread of all programs, which shrink a program's own."""
LEAST_SPREAD = 0.005
"""Lower limit of a spread of log relative speeds."""
LONGEST_WAIT = -4.0
"""Lower limit of the logarithm of the CPU share that a program gets over that alone."""
LOAD, SCATTER = "load", "scatter"
SENSITIVITY_PROXIES = (LOAD, SCATTER)
"""Proxies of how sensitive a program is that was never measured with neighbours: the log relative
speed of its CPU time next to one load that fills the caches, and how its isolated CPU times
scatter. The latter is informative because a guest is never quite alone: the effect of other guests
on the caches shows in isolated runs too. Both names are keys of stored files."""
_LEAST_MIB = 0.03
"""Lower limit of a working set before the logarithm."""


@dataclass(frozen=True)
class ColocationRows(Columns):
    """n co-located programs, of m = len(NAMES) host metrics each.

    Attributes:
        programs: keys of the programs, shape (n,).
        windows: n windows of shape (t, m) each, as `window_values` returns them; t may differ.
        window_of: equal for rows of the same window, shape (n,).
        window_statistics: statistics of the windows over time, shape (n, len(STATISTICS), m); NaN
            for a metric that a window lacks.
        alone: medians of the metrics while the program ran alone, shape (n, m).
        facts: properties of the programs, shape (n, len(FACTS)); NaN where unknown.
        log_p_with_load: log relative speed of CPU time next to one load that fills the caches,
            shape (n,); NaN where not measured.
        granted: as in `Colocation`, shape (n,); NaN where unknown.
        reference: logarithm of `Colocation.reference_ratio`, shape (n,); 0 where unknown.
        estimated: whether the window is a forecast, as in `Colocation`, shape (n,).
    """

    programs: Names
    windows: Sequence[Matrix]
    window_of: Positions
    window_statistics: Matrix
    alone: Matrix
    facts: Matrix
    log_p_with_load: Column
    granted: Column
    reference: Column
    estimated: Mask

    @classmethod
    def from_queries(cls, queries: Sequence[Query], idle: HostWindow | None = None) -> Self:
        """Rows in the order of the queries.

        Args:
            queries: n queries about co-located programs.
            idle: metrics of an idle host, in place of those that were not read while a program ran
                alone.
        """
        colocations = [query.colocation for query in queries]
        windows, window_of = _distinct([colocation.window for colocation in colocations])
        profiles, profile_of = _distinct([colocation.profile for colocation in colocations])
        values = values_of(windows)
        alone = levels([profile.alone for profile in profiles])
        facts = [
            (p.working_set_mib, p.cpu_share, p.cpu_spread, p.p_cpu_beside_cache) for p in profiles
        ]
        size, share, spread, with_load = _columns(facts, 4)
        size, spread = np.maximum(size, _LEAST_MIB), np.maximum(spread, LEAST_SPREAD)
        granted, ratio = _columns([(c.granted, c.reference_ratio) for c in colocations], 2)
        return cls(
            np.array([profile.program for profile in profiles], dtype=np.str_)[profile_of],
            [values[window] for window in window_of],
            window_of,
            statistics_of(values)[window_of],
            np.where(np.isnan(alone), level(idle or HostWindow()), alone)[profile_of],
            np.column_stack([np.log(size), share, np.log(spread)])[profile_of],
            np.log(with_load)[profile_of],
            granted,
            np.log(np.where(np.isnan(ratio), 1.0, ratio)),
            np.array([c.estimated for c in colocations], dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.programs)

    @property
    def has_window(self) -> Mask:
        """Whether a row's window holds any metric, shape (n,)."""
        return np.asarray(np.isfinite(self.window_statistics[:, 0]).any(axis=1))

    @property
    def waiting(self) -> Column:
        """Logarithm of the CPU share that a program gets over its share alone, shape (n,).

        Where either share was not read, the share that a scheduler grants is taken; where that is
        unknown too, the result is NaN. By definition, wall time is CPU time divided by this ratio.
        It is at most 1: a program cannot use more of a CPU than it did alone.
        """
        column = NAMES.index("task.cpu_share")
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.log(self.window_statistics[:, 0, column] / self.alone[:, column])
            ratio = np.where(np.isfinite(ratio), ratio, np.log(self.granted))
        return np.where(np.isfinite(ratio), np.clip(ratio, LONGEST_WAIT, 0.0), np.nan)

    @property
    def sensitivity_proxies(self) -> Matrix:
        """Shape (n, len(SENSITIVITY_PROXIES)); NaN where a profile lacks one."""
        scatter = np.exp(self.facts[:, FACTS.index("log_cpu_spread")])
        return np.stack([self.log_p_with_load, scatter], axis=1)

    @property
    def cpu_share(self) -> Column:
        """CPU time over wall time of each program alone, shape (n,); NaN where unknown."""
        share: Column = self.facts[:, FACTS.index("cpu_share")]
        return share

    def unprofiled(self) -> Self:
        """The same rows as if no program had been measured next to a load."""
        return replace(self, log_p_with_load=np.full(len(self), np.nan))

    def matrix(self, metrics: Sequence[int]) -> Matrix:
        """Feature matrix of the boosters.

        A metric that a window lacks takes the value that it has alone, because missing values do
        not occur when the trees are trained.

        Args:
            metrics: positions in NAMES of the metrics to use.

        Returns:
            Statistics of the metrics, the change of their medians from alone, their values alone,
            and `facts`: shape (n, len(metrics) x (len(STATISTICS) + 2) + len(FACTS)).
        """
        alone = self.alone[:, list(metrics)]
        filled = self.window_statistics[:, :, list(metrics)].copy()
        missing = np.isnan(filled[:, 0])
        for statistic, usual in enumerate((alone, np.zeros_like(alone), alone)):
            filled[:, statistic] = np.where(missing, usual, filled[:, statistic])
        flat = filled.reshape(len(self), -1)
        return np.concatenate([flat, filled[:, 0] - alone, alone, self.facts], axis=1)


@dataclass(frozen=True)
class ProgramEffects:
    """Median and spread of each program's log relative speed over all its neighbours.

    A spread is a robust estimate of the standard deviation.

    Attributes:
        programs: key -> (median, spread).
        common: (median, spread) over all programs.
        shares: sensitivity proxy -> (median, spread) as multiples of the proxy.
    """

    programs: Mapping[str, tuple[float, float]]
    common: tuple[float, float] = (0.0, 0.1)
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def fit(cls, programs: Names, log_p: Column, sensitivity_proxies: Matrix) -> Self:
        """Effects from n runs; a program with fewer than FEWEST_RUNS has none of its own.

        Args:
            programs: key of each run's program, shape (n,).
            log_p: log relative speed of each run, shape (n,).
            sensitivity_proxies: as in `ColocationRows`, shape (n, len(SENSITIVITY_PROXIES)).
        """
        each = {str(name): log_p[programs == name] for name in np.unique(programs)}
        if not each:
            return cls({})
        spreads = {name: _spread(values) for name, values in each.items()}
        common = float(np.median(log_p)), float(np.median(list(spreads.values())))
        effects = {}
        for name, values in each.items():
            if len(values) >= FEWEST_RUNS:
                weight = len(values) / (len(values) + PRIOR_RUNS)
                middle = weight * float(np.median(values)) + (1.0 - weight) * common[0]
                spread = spreads[name] ** weight * common[1] ** (1.0 - weight)
                effects[name] = middle, spread
        shares = {}
        for name, column in zip(SENSITIVITY_PROXIES, sensitivity_proxies.T, strict=True):
            proxy = {str(program): value for program, value in zip(programs, column, strict=True)}
            share = _shares(effects, proxy)
            if share is not None:
                shares[name] = share
        return cls(effects, common, shares)

    def estimate(
        self, programs: Names, sensitivity_proxies: Matrix
    ) -> tuple[Column, Column, Names]:
        """Median, spread and mode of each program, shapes (n,).

        The mode is `known` for a program of the training set, `profiled` for one that was measured
        next to one load only, else `new`. For the latter two, estimates by their sensitivity
        proxies are averaged; a program without any takes the values of all programs.

        Args:
            programs: keys of the programs, shape (n,).
            sensitivity_proxies: as in `ColocationRows`, shape (n, len(SENSITIVITY_PROXIES)).
        """
        names = programs.tolist()
        pairs = [self.programs.get(name, self.common) for name in names]
        middle, spread = np.array(pairs).reshape(-1, 2).T
        known = np.array([name in self.programs for name in names], dtype=np.bool_)
        mode = np.where(known, "known", "new")
        count = np.zeros(len(known))
        levels, spreads = np.zeros_like(count), np.zeros_like(count)
        for name, column in zip(SENSITIVITY_PROXIES, sensitivity_proxies.T, strict=True):
            if name not in self.shares:
                continue
            usable = ~known & np.isfinite(column)
            if name == LOAD:
                mode = np.where(usable, "profiled", mode)
            size = np.where(usable, column, 0.0)
            share_of_median, share_of_spread = self.shares[name]
            levels += share_of_median * size
            spreads += usable * np.log(np.maximum(LEAST_SPREAD, share_of_spread * np.abs(size)))
            count += usable
        by_proxy, count = count > 0, np.maximum(count, 1.0)
        middle = np.where(by_proxy, levels / count, middle)
        return middle, np.where(by_proxy, np.exp(spreads / count), spread), mode


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


def _distinct(objects: Sequence[T]) -> tuple[list[T], Positions]:
    """The distinct ones of n objects, by identity, and the place of each among them, shape (n,)."""
    groups = groups_of(map(id, objects))
    places = np.empty(len(objects), dtype=np.intp)
    for place, rows in enumerate(groups.values()):
        places[rows] = place
    return [objects[rows[0]] for rows in groups.values()], places


def _columns(rows: Sequence[tuple[float | None, ...]], count: int) -> Matrix:
    """The columns of n rows, shape (count, n); NaN in place of None."""
    return np.array(rows, dtype=np.float64).reshape(-1, count).T


def _shares(
    effects: Mapping[str, tuple[float, float]], proxy: Mapping[str, float]
) -> tuple[float, float] | None:
    """Medians over programs of median / proxy and of spread / |proxy|, weighted by |proxy|."""
    values = np.array([proxy[name] for name in effects], dtype=np.float64)
    usable = np.isfinite(values) & (values != 0.0)
    if np.isfinite(values).sum() < FEWEST_PROFILED or not usable.any():
        return None
    middle, spread = np.array(list(effects.values()))[usable].T
    size = np.abs(values[usable])
    ratios = middle / values[usable], spread / size
    return weighted_quantile(ratios[0], size, 0.5), weighted_quantile(ratios[1], size, 0.5)


def _spread(values: Column) -> float:
    """Mean of two estimates of the standard deviation: the usual one, and a robust one.

    The robust one is the median absolute deviation times 1.4826, its ratio to the standard
    deviation of a normal distribution; outliers hardly move it.
    """
    robust = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    sample = float(values.std(ddof=1)) if len(values) > 1 else robust
    return max(LEAST_SPREAD, 0.5 * robust + 0.5 * sample)


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
