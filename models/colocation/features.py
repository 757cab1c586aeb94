"""Programs beside neighbours as rows of numbers, and what was measured of each program before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import (
    HOST_METRICS,
    NAMES,
    STATISTICS,
    level,
    statistics,
    window_values,
)

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Names = NDArray[np.str_]
METRICS = ("p_cpu", "p_wall")
FACTS = ("log_working_set", "cpu_share", "log_cpu_spread")
FEWEST_RUNS = 3
"""Runs of a program from which on its own level and spread count."""
FEWEST_PROFILED = 3
"""Programs with a yardstick from which on others are placed by it."""
PRIOR_RUNS = 2.0
"""Imagined runs at the level and spread of all programs, that its own are shrunk by."""
LEAST_SPREAD = 0.005
LONGEST_WAIT = -4.0
YARDSTICKS = ("beside", "scatter")
"""What tells how much a program minds that was never measured beside neighbours: log P for CPU time
beside one load that fills the caches, and how its CPU times alone scatter. A guest is never quite
alone: what other guests do to the caches shows in isolated runs too."""
_LEAST_MIB = 0.03


def colocation_of(query: Query) -> Colocation:
    """The program beside neighbours that a query asks about."""
    assert isinstance(query.workload, Colocation)
    return query.workload


@dataclass(frozen=True)
class ColocationRows:
    """n programs beside neighbours; m = len(NAMES).

    Attributes:
        programs: n keys.
        windows: n windows, t x m each, as `window_values` gives them.
        found: n x len(STATISTICS) x m, statistics of the windows.
        alone: n x m, medians while the program ran alone.
        facts: n x len(FACTS).
        beside: n, log P for CPU time beside one load that fills the caches; NaN where not measured.
        granted: n, as in `Colocation`; NaN where not known.
        reference: n, logarithm of `Colocation.reference_ratio`; 0 where not known.
    """

    programs: NDArray[np.str_]
    windows: Sequence[Matrix]
    found: Matrix
    alone: Matrix
    facts: Matrix
    beside: Column
    granted: Column
    reference: Column

    @classmethod
    def of(cls, queries: Sequence[Query], idle: HostWindow | None = None) -> Self:
        """Rows in the order of the queries.

        Args:
            queries: n programs beside neighbours.
            idle: what an idle host shows, for metrics that were not read while a program ran alone.
        """
        asked = [colocation_of(query) for query in queries]
        windows = [window_values(one.window) for one in asked]
        found = np.full((len(asked), len(STATISTICS), len(NAMES)), np.nan)
        lengths = np.array([len(one) for one in windows], dtype=np.intp)
        for length in np.unique(lengths[lengths > 0]):
            rows = np.flatnonzero(lengths == length)
            found[rows] = statistics(np.stack([windows[row] for row in rows]))
        known: dict[int, Matrix] = {}
        usual = level(idle or HostWindow())
        for one in asked:
            if id(one.profile) not in known:
                alone = level(one.profile.alone)
                known[id(one.profile)] = np.where(np.isnan(alone), usual, alone)
        return cls(
            np.array([one.profile.program for one in asked], dtype=np.str_),
            windows,
            found,
            np.array([known[id(one.profile)] for one in asked]).reshape(-1, len(NAMES)),
            np.array([_facts(one.profile) for one in asked]).reshape(-1, len(FACTS)),
            np.array([_beside(one.profile) for one in asked]),
            np.array([np.nan if one.granted is None else one.granted for one in asked]),
            np.log([1.0 if one.reference_ratio is None else one.reference_ratio for one in asked]),
        )

    def __len__(self) -> int:
        return len(self.programs)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether a row's window holds anything, shape (n,)."""
        found: NDArray[np.bool_] = np.isfinite(self.found[:, 0]).sum(axis=1) > 0
        return found

    @property
    def waiting(self) -> Column:
        """Log of the CPU share that a program gets over that alone, shape (n,).

        From what it is granted where either was not read, NaN where that is not known. CPU time
        divided by it is wall time, by definition; a program cannot gain from others letting it run
        more than it asked for.
        """
        place = NAMES.index("task.cpu_share")
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.log(self.found[:, 0, place] / self.alone[:, place])
            found = np.where(np.isfinite(found), found, np.log(self.granted))
        return np.where(np.isfinite(found), np.clip(found, LONGEST_WAIT, 0.0), np.nan)

    @property
    def yardsticks(self) -> Matrix:
        """Shape (n, len(YARDSTICKS)); NaN where a profile does not tell."""
        scatter = np.exp(self.facts[:, FACTS.index("log_cpu_spread")])
        return np.stack([self.beside, scatter], axis=1)

    @property
    def cpu_share(self) -> Column:
        """CPU time over wall time of each program alone, shape (n,); NaN where not known."""
        share: Column = self.facts[:, FACTS.index("cpu_share")]
        return share

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Self:
        """The rows at these positions, or where the mask is True."""
        index = np.flatnonzero(rows) if rows.dtype == bool else rows
        windows = [self.windows[int(row)] for row in index]
        rest = (self.found, self.alone, self.facts, self.beside, self.granted, self.reference)
        return type(self)(self.programs[index], windows, *(one[index] for one in rest))

    def unprofiled(self) -> Self:
        """The same as if no program had been measured beside any load."""
        return replace(self, beside=np.full(len(self), np.nan))

    def matrix(self, metrics: Sequence[int]) -> Matrix:
        """Statistics of some metrics, their change from alone, alone, and facts.

        A metric that a window lacks counts as it is alone: trees were never shown its absence.

        Args:
            metrics: places in NAMES.

        Returns:
            n x (len(metrics) x (len(STATISTICS) + 2) + len(FACTS)).
        """
        alone = self.alone[:, list(metrics)]
        of = self.found[:, :, list(metrics)].copy()
        lost = np.isnan(of[:, 0])
        for place, usual in enumerate((alone, np.zeros_like(alone), alone)):
            of[:, place] = np.where(lost, usual, of[:, place])
        flat = of.reshape(len(self), -1)
        return np.concatenate([flat, of[:, 0] - alone, alone, self.facts], axis=1)


@dataclass(frozen=True)
class ProgramEffects:
    """How much each program is slowed, whatever is beside it: median and spread of log P.

    Attributes:
        programs: key -> (median, spread).
        common: of all programs.
        shares: yardstick -> median and spread as shares of it.
    """

    programs: Mapping[str, tuple[float, float]]
    common: tuple[float, float] = (0.0, 0.1)
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, programs: NDArray[np.str_], log_p: Column, yardsticks: Matrix) -> Self:
        """From n runs; a program with fewer than FEWEST_RUNS has none of its own.

        Args:
            programs: keys.
            log_p: of each run.
            yardsticks: as in `ColocationRows`.
        """
        each = {str(name): log_p[programs == name] for name in np.unique(programs)}
        if not each:
            return cls({})
        spreads = {name: _spread(values) for name, values in each.items()}
        common = float(np.median(log_p)), float(np.median(list(spreads.values())))
        found = {}
        for name, values in each.items():
            if len(values) >= FEWEST_RUNS:
                mine = len(values) / (len(values) + PRIOR_RUNS)
                middle = mine * float(np.median(values)) + (1.0 - mine) * common[0]
                spread = spreads[name] ** mine * common[1] ** (1.0 - mine)
                found[name] = middle, spread
        shares = {}
        for name, column in zip(YARDSTICKS, yardsticks.T, strict=True):
            one = {str(program): value for program, value in zip(programs, column, strict=True)}
            share = _shares(found, one)
            if share is not None:
                shares[name] = share
        return cls(found, common, shares)

    def rows(self, programs: NDArray[np.str_], yardsticks: Matrix) -> tuple[Column, Column, Names]:
        """Median, spread and mode of each program, shapes (n,).

        The mode is `known` where the program was measured, `profiled` where it was beside one load
        alone, else `new`. What the yardsticks of a program say that was not measured is averaged;
        where there is none, all programs tell.

        Args:
            programs: keys.
            yardsticks: as in `ColocationRows`.
        """
        pairs = [self.programs.get(str(name), self.common) for name in programs]
        middle, spread = np.array(pairs).reshape(-1, 2).T
        known = np.array([str(name) in self.programs for name in programs], dtype=np.bool_)
        mode = np.where(known, "known", "new")
        count = np.zeros(len(known))
        levels, spreads = np.zeros_like(count), np.zeros_like(count)
        for name, column in zip(YARDSTICKS, yardsticks.T, strict=True):
            if name not in self.shares:
                continue
            one = ~known & np.isfinite(column)
            if name == "beside":
                mode = np.where(one, "profiled", mode)
            size = np.where(one, column, 0.0)
            share, own = self.shares[name]
            levels += share * size
            spreads += one * np.log(np.maximum(LEAST_SPREAD, own * np.abs(size)))
            count += one
        told, count = count > 0, np.maximum(count, 1.0)
        middle = np.where(told, levels / count, middle)
        return middle, np.where(told, np.exp(spreads / count), spread), mode

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        programs = {k: list(v) for k, v in self.programs.items()}
        shares = {name: list(one) for name, one in self.shares.items()}
        return {"programs": programs, "common": self.common, "shares": shares}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The levels that `to_json` wrote."""
        programs = {k: (float(v[0]), float(v[1])) for k, v in content["programs"].items()}
        common, shares = content["common"], content["shares"]
        found = {name: (float(one[0]), float(one[1])) for name, one in shares.items()}
        return cls(programs, (float(common[0]), float(common[1])), found)


def idle_window(queries: Sequence[Query]) -> HostWindow:
    """What a host shows with no program on it, one second.

    Where no profile says so, nearly the least (the most, of what falls) that it showed beside any.
    """
    profiles = {q.workload.profile for q in queries if isinstance(q.workload, Colocation)}
    names = sorted({name for p in profiles for name in p.alone.metrics})
    found = []
    for name in names:
        alone = [_median(p.alone, name) for p in profiles]
        without = [_median(p.without, name) for p in profiles]
        empty = [value for value in without if not np.isnan(value)]
        known = empty or [value for value in alone if not np.isnan(value)]
        share = 90.0 if name in HOST_METRICS and HOST_METRICS[name].falls else 10.0
        share = 50.0 if empty else share
        found.append(float(np.percentile(known, share)) if known else float("nan"))
    return HostWindow(tuple(names), (tuple(found),) if names else ())


def _median(window: HostWindow, name: str) -> float:
    if name not in window.metrics or not window.seconds:
        return float("nan")
    column = window.metrics.index(name)
    values = [one[column] for one in window.seconds if not np.isnan(one[column])]
    return float(np.median(values)) if values else float("nan")


def _facts(profile: ProgramProfile) -> tuple[float, ...]:
    size, share, spread = profile.working_set_mib, profile.cpu_share, profile.cpu_spread
    return (
        float("nan") if size is None else float(np.log(max(size, _LEAST_MIB))),
        float("nan") if share is None else share,
        float("nan") if spread is None else float(np.log(max(spread, LEAST_SPREAD))),
    )


def _beside(profile: ProgramProfile) -> float:
    p_cpu = profile.p_cpu_beside_cache
    return float("nan") if p_cpu is None else float(np.log(p_cpu))


def _shares(
    levels: Mapping[str, tuple[float, float]], yardstick: Mapping[str, float]
) -> tuple[float, float] | None:
    """Medians of level and spread over a yardstick, by how much that is."""
    one = np.array([yardstick[name] for name in levels], dtype=np.float64)
    usable = np.isfinite(one) & (one != 0.0)
    if np.isfinite(one).sum() < FEWEST_PROFILED or not usable.any():
        return None
    middle, spread = np.array(list(levels.values()))[usable].T
    size = np.abs(one[usable])
    return _weighted_median(middle / one[usable], size), _weighted_median(spread / size, size)


def _weighted_median(values: Column, weights: Column) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) >= 0.5 * weights.sum()
    return float(values[order][int(np.argmax(reached))])


def _spread(values: Column) -> float:
    """Half from the median deviation, which runs gone astray do not move, half from all."""
    robust = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    whole = float(values.std(ddof=1)) if len(values) > 1 else robust
    return max(LEAST_SPREAD, 0.5 * robust + 0.5 * whole)
