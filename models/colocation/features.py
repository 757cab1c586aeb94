"""Features of co-located programs, and fitted effects of measured programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions, groups_of
from forerun.data.query import Query
from forerun.data.workload import HostWindow
from forerun.features.host_windows import NAMES, level, levels, statistics_of, values_of
from forerun.models.conformal import weighted_quantile

T = TypeVar("T")
METRICS = ("p_cpu", "p_wall")
"""Relative speed in CPU time and in wall time: the time alone over the time with neighbours."""
FACTS = ("log_working_set", "cpu_share", "log_cpu_spread")
"""Columns of `ColocationRows.facts`: logarithm of a program's working set in MiB, its CPU time over
wall time alone, and logarithm of `ProgramProfile.cpu_spread`, the scatter of isolated CPU times."""
FEWEST_RUNS = 3
"""Runs below which a program has no median and spread of its own."""
FEWEST_PROFILED = 3
"""Training programs with a sensitivity proxy below which the proxy is not used."""
PRIOR_RUNS = 2.0
"""Pseudo-observations at the median and spread of all programs, which shrink those of a program."""
LEAST_SPREAD = 0.005
"""Lower limit of a spread of log relative speeds."""
LONGEST_WAIT = -4.0
"""Lower limit of the log ratio of a program's CPU share to its share alone."""
LOAD, SCATTER = "load", "scatter"
SENSITIVITY_PROXIES = (LOAD, SCATTER)
"""Proxies of how sensitive a program is that was never measured with neighbours: the log relative
speed of its CPU time next to one load that fills the caches, and the scatter of its isolated CPU
times. Scatter is informative because a guest is never quite alone: other guests affect the caches
in isolated runs too. Both names are keys of stored files."""
_LEAST_MIB = 0.03
"""Lower limit of a working set before the logarithm."""


@dataclass(frozen=True)
class ColocationRows(Columns):
    """n co-located programs with m = len(NAMES) host metrics each.

    Attributes:
        programs: keys of the programs, shape (n,).
        window_of: equal for rows of the same window, shape (n,).
        window_statistics: statistics of the windows over time, shape (n, len(STATISTICS), m); NaN
            for metrics that a window lacks.
        alone: medians of the metrics while the program ran alone, shape (n, m).
        facts: properties of the programs, shape (n, len(FACTS)); NaN where unknown.
        log_p_with_load: log relative speed of CPU time next to one load that fills the caches,
            shape (n,); NaN where not measured.
        granted: as in `Colocation`, shape (n,); NaN where unknown.
        reference: logarithm of `Colocation.reference_ratio`, shape (n,); 0 where unknown.
        estimated: whether the window is a forecast, as in `Colocation`, shape (n,).
    """

    programs: Names
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
            idle: metrics of an idle host, which replace those not read while a program ran alone.
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
        """Log ratio of the CPU share that a program gets to its share alone, shape (n,).

        Where either share was not read, the share granted by the scheduler is used; where that is
        unknown too, the result is NaN. By definition, wall time is CPU time divided by this ratio.
        It is at most 1, since a program cannot use more of a CPU than it did alone.
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
        """The rows as if no program had been measured next to a load."""
        return replace(self, log_p_with_load=np.full(len(self), np.nan))

    def matrix(self, metrics: Sequence[int]) -> Matrix:
        """Feature matrix of the boosters.

        A metric that a window lacks takes its value from the isolated run, because the trees were
        trained without missing values.

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
        """Effects from n runs; programs with fewer than FEWEST_RUNS runs get none of their own.

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

        The mode is `known` for a program of the training set, `profiled` for one measured next to
        one load only, and `new` otherwise. For the latter two, estimates from their sensitivity
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


def _distinct(objects: Sequence[T]) -> tuple[list[T], Positions]:
    """The distinct objects by identity, and each object's position among them, shape (n,)."""
    groups = groups_of(map(id, objects))
    places = np.empty(len(objects), dtype=np.intp)
    for place, rows in enumerate(groups.values()):
        places[rows] = place
    return [objects[rows[0]] for rows in groups.values()], places


def _columns(rows: Sequence[tuple[float | None, ...]], count: int) -> Matrix:
    """The columns of n rows, shape (count, n); NaN replaces None."""
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
    """Mean of the sample standard deviation and a robust estimate of it.

    The robust one is the median absolute deviation times 1.4826, its ratio to the standard
    deviation of a normal distribution, and is barely affected by outliers.
    """
    robust = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    sample = float(values.std(ddof=1)) if len(values) > 1 else robust
    return max(LEAST_SPREAD, 0.5 * robust + 0.5 * sample)
