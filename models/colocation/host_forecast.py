"""What a host will show once programs run beside each other, put together from their profiles.

Each program adds what it added to an idle host when it ran alone, times a weight that pairs of
profiled programs taught for each metric (1 where none did): shares of time add up, latencies
multiply. What a program sees of itself alone (its own CPU, its own times) is not put together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import NAMES, PINNED, level, window_of, window_values

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
PAIR = "victim:"
"""Beginning of the names of neighbours that are programs with profiles of their own."""
OWN = ("task.", *PINNED)
PRIOR_PAIRS = 5.0
MOST_WEIGHT = 1.5
_LEAST_DEMAND = 1e-3
_PRIVATE = np.array([name.startswith(OWN) for name in NAMES])


@dataclass(frozen=True)
class Mixing:
    """How profiles add up.

    Attributes:
        weights: metric -> share of what a program shows alone that it adds beside others.
        pairs: runs beside programs with profiles that taught them.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    pairs: int = 0

    @classmethod
    def fit(cls, change: Matrix, added: Matrix) -> Self:
        """Least squares, drawn to 1 by some imagined pairs.

        Args:
            change: n x len(NAMES), window less the program alone.
            added: n x len(NAMES), neighbour alone less idle.
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
        """The host with these programs on top of what it shows.

        Args:
            programs: that are to come.
            host: what it shows now; idle where it holds nothing.
            idle: what an idle host shows.
            threads: of each program, which adds as often what it added alone; one where empty.
        """
        weight = np.array([self.weights.get(name, 1.0) for name in NAMES])
        base, alone = level(host), level(idle)
        base = np.where(np.isnan(base), alone, base)
        added = [
            count * weight * (level(one.alone) - _before(one, alone))
            for one, count in zip(programs, threads or [1] * len(programs), strict=True)
        ]
        found = base + np.nansum([np.zeros(len(NAMES)), *added], axis=0)
        return window_of(np.where(_PRIVATE, np.nan, found))


def pairs_of(
    asked: Sequence[Colocation], neighbours: NDArray[np.str_]
) -> tuple[NDArray[np.intp], list[ProgramProfile]]:
    """Rows whose neighbour is a program with a profile, and those profiles."""
    profiles = {one.profile.program: one.profile for one in asked}
    found = [
        (row, profiles[name.removeprefix(PAIR)])
        for row, name in enumerate(map(str, neighbours))
        if name.startswith(PAIR) and name.removeprefix(PAIR) in profiles
    ]
    return np.array([row for row, _ in found], dtype=np.intp), [one for _, one in found]


def granted(demands: Sequence[float], cpus: float) -> Column:
    """What each of n programs gets over what it wants, where they share CPUs fairly.

    Nobody gets less than an equal share of what those leave who want less (max-min fairness).

    Args:
        demands: CPUs that each wants, above 0.
        cpus: that there are.
    """
    wanted = np.array(demands, dtype=np.float64)
    ordered = np.sort(wanted)
    waiting = np.arange(len(wanted), 0, -1)
    left = cpus - np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    short = ordered * waiting >= left
    first = int(np.argmax(short))
    level = left[first] / waiting[first] if short.any() else np.inf
    found: Column = np.minimum(1.0, level / wanted)
    return found


def put_together(
    asked: Sequence[Colocation],
    neighbours: NDArray[np.str_],
    cpus: Column,
    idle: HostWindow,
    mixing: Mixing,
) -> tuple[NDArray[np.intp], list[Colocation]]:
    """Runs beside programs with profiles as they would be asked about before they were run.

    Args:
        asked: n runs.
        neighbours: of each.
        cpus: that each and its neighbour share.
        idle: what an idle host shows.
        mixing: how profiles add up; taught by others than these runs where they are judged.

    Returns:
        Positions of those runs, and each with a window made of the two profiles.
    """
    rows, beside = pairs_of(asked, neighbours)
    found = []
    for row, other in zip(rows, beside, strict=True):
        profile = asked[row].profile
        window = mixing.together([profile, other], idle, idle)
        share = float(granted([demand(profile), demand(other)], cpus[row])[0])
        found.append(replace(asked[row], window=window, estimated=True, granted=share))
    return rows, found


def demand(profile: ProgramProfile) -> float:
    """CPUs that a program wants: the share it had alone, one where that is not known."""
    return max(_LEAST_DEMAND, 1.0 if profile.cpu_share is None else profile.cpu_share)


def forecast_queries(
    queries: Sequence[Query], neighbours: NDArray[np.str_], cpus: Column, idle: HostWindow
) -> tuple[NDArray[np.intp], list[Query]]:
    """Queries with a window put together wherever the neighbour is a program with a profile.

    What adds up is taught by runs beside all neighbours but the one that is asked about.

    Args:
        queries: n runs.
        neighbours: of each.
        cpus: that each and its neighbour share.
        idle: what an idle host shows.

    Returns:
        Positions of those runs in rising order, and n queries.
    """
    asked = [_colocation(query) for query in queries]
    coming = list(queries)
    for name in np.unique(neighbours):
        mixing = mixing_of(asked, np.where(neighbours == name, "", neighbours), idle)
        only = np.where(neighbours == name, neighbours, "")
        for row, one in zip(*put_together(asked, only, cpus, idle, mixing), strict=True):
            coming[row] = replace(coming[row], workload=one)
    rows, _ = pairs_of(asked, neighbours)
    return rows, coming


def mixing_of(
    asked: Sequence[Colocation], neighbours: NDArray[np.str_], idle: HostWindow
) -> Mixing:
    """Weights from the runs beside programs with profiles."""
    rows, beside = pairs_of(asked, neighbours)
    whole = [i for i, row in enumerate(rows) if len(window_values(asked[row].window))]
    if not whole:
        return Mixing()
    windows = [level(asked[rows[i]].window) - level(asked[rows[i]].profile.alone) for i in whole]
    added = [level(beside[i].alone) - _before(beside[i], level(idle)) for i in whole]
    return Mixing.fit(np.array(windows), np.array(added))


def _colocation(query: Query) -> Colocation:
    assert isinstance(query.workload, Colocation)
    return query.workload


def _before(program: ProgramProfile, idle: Column) -> Column:
    """What its host showed without it."""
    found = level(program.without)
    return np.where(np.isnan(found), idle, found)
