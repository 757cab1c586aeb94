"""Simple rules for the relative speed of co-located programs, as baselines.

Rules with parameters are fitted on the training rows of a fold alone.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.colocation.host_forecast import demand

NEIGHBOUR: Final = "neighbour"
PLACEMENT: Final = "cpus_shared"
"""Grouping key: how many CPUs a program and its neighbour share, `1` or `2`."""
ISOLATED: Final = "none"
RUNNABLE: Final = 2
"""Programs on a shared CPU in every co-located run: the victim and its neighbour."""


def rules(train: Measurements, held_out: Measurements, metric: str) -> Mapping[str, Column]:
    """Rule -> relative speed of the n held-out runs, shape (n,).

    Args:
        train: training rows, including isolated ones.
        held_out: n held-out co-located rows with the groups `neighbour` and `cpus_shared`.
        metric: `p_cpu` or `p_wall`.
    """
    return {
        "rule_unslowed": np.ones(len(held_out)),
        "rule_fair_share": fair_share(held_out, metric),
        "rule_fair_share_of_reference": fair_share(held_out, metric) * reference_ratio(held_out),
        "rule_neighbour_median": neighbour_median(train, held_out, metric),
    }


def fair_share(held_out: Measurements, metric: str) -> Column:
    """Relative speed where programs that share one CPU get equal parts of it, shape (n,).

    In wall time, a program that uses the share c of a CPU when isolated gets min(c, 1/k) of a CPU
    that it shares with k - 1 others, so its relative speed is min(c, 1/k) / c. On a CPU of its own,
    and in CPU time, it is 1.
    """
    if metric != "p_wall":
        return np.ones(len(held_out))
    wanted = np.array([_wanted(query) for query in held_out.queries])
    shared = held_out.groups[PLACEMENT] == "1"
    return np.where(shared, np.minimum(wanted, 1.0 / RUNNABLE) / wanted, 1.0)


def reference_ratio(held_out: Measurements) -> Column:
    """CPU time of each run's isolated reference runs over the program's median; shape (n,).

    It is 1 where it is unknown.
    """
    known = [query.colocation.reference_ratio for query in held_out.queries]
    return np.array([1.0 if ratio is None else ratio for ratio in known])


def neighbour_median(train: Measurements, held_out: Measurements, metric: str) -> Column:
    """Median relative speed of the training rows with the same neighbour and placement, (n,).

    Where the training rows hold no such neighbour, the median of the same placement; without that,
    of all co-located rows.
    """
    values = train.values[metric]
    known = np.isfinite(values) & (train.groups[NEIGHBOUR] != ISOLATED)
    values, keys = values[known], _keys(train.take(known))
    placements = train.groups[PLACEMENT][known]
    both = {key: float(np.median(values[keys == key])) for key in np.unique(keys)}
    one = {name: float(np.median(values[placements == name])) for name in np.unique(placements)}
    usual = float(np.median(values)) if len(values) else 1.0
    rows = zip(_keys(held_out), held_out.groups[PLACEMENT], strict=True)
    return np.array([both.get(key, one.get(placement, usual)) for key, placement in rows])


def _keys(rows: Measurements) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    pairs = zip(rows.groups[NEIGHBOUR], rows.groups[PLACEMENT], strict=True)
    return np.array([f"{neighbour} {cpus}" for neighbour, cpus in pairs], dtype=np.str_)


def _wanted(query: Query) -> float:
    return demand(query.colocation.profile)
