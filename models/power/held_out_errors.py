"""What the law of power misses: chips left out, jobs left out, and chips known by a few rows."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars
from forerun.models.conformal.intervals import held_out_folds
from forerun.models.power.intervals import HeldOut
from forerun.models.power.law import Demand, PowerLaw, unlimited_w
from forerun.models.power.runs import PowerRuns

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHOTS, DRAWS = 20, 5
"""Rows of a device in a support set, and how often one is drawn."""
JOB_FOLDS: Final = 5


def chips_left_out(runs: PowerRuns, watts: Column) -> Iterator[HeldOut]:
    """Each chip in turn, answered by a law of the others.

    Args:
        runs: n runs.
        watts: (n,) average power.
    """
    chip = np.array([str(key) for key in runs.silicon])
    for one in np.unique(chip):
        held = chip == one
        if not held.all():
            law, here = PowerLaw().fit(runs.take(~held), watts[~held]), runs.take(held)
            yield HeldOut(here, law.demand(here), watts[held], "unseen")


def jobs_left_out(
    runs: PowerRuns, watts: Column, groups: NDArray[np.str_], seed: int
) -> Iterator[HeldOut]:
    """Networks and operators in folds, on chips that stay.

    Args:
        runs: n runs.
        watts: (n,) average power.
        groups: n jobs or operators with their shape, whole in one fold.
        seed: of the folds.
    """
    for held in held_out_folds(groups, JOB_FOLDS, seed):
        if not held.all():
            law, here = PowerLaw().fit(runs.take(~held), watts[~held]), runs.take(held)
            yield HeldOut(here, law.demand(here), watts[held], "seen")


def after_shots(rows: Measurements, runs: PowerRuns, seed: int) -> Iterator[HeldOut]:
    """Chips whose operators were measured, left out, of which `SHOTS` operators are then given.

    Args:
        rows: n runs with `power_w`.
        runs: the same.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    watts = rows.values["power_w"]
    chip = np.array([str(key) for key in runs.silicon])
    kernels = np.array([isinstance(q.workload, Kernel) for q in rows.queries], dtype=np.bool_)
    for one in np.unique(chip[kernels]):
        here = kernels & (chip == one)
        if here.sum() <= SHOTS or (chip == one).all():
            continue
        law = PowerLaw().fit(runs.take(chip != one), watts[chip != one])
        for _ in range(DRAWS):
            places = random.permutation(np.flatnonzero(here))
            support = np.zeros(len(rows), dtype=np.bool_)
            support[places[:SHOTS]] = True
            yield _one_draw(rows, runs, law, support, here & ~support)


def law_residuals(runs: PowerRuns, demand: Demand, watts: Column) -> Column:
    """Logarithm of the dynamic part that measured power stands for over the law's, (n,)."""
    residuals: Column = np.log(unlimited_w(runs, demand, watts) / demand.dynamic_w)
    return residuals


def kind_of(query: Query) -> str:
    """Class of work that has a correction of its own: an operator's kind, or `network`."""
    workload = query.workload
    if isinstance(workload, Kernel):
        return workload.operator.kind
    assert isinstance(workload, Network)
    return workload.graph.operators[0].kind if len(workload.graph) == 1 else "network"


def _one_draw(
    rows: Measurements, runs: PowerRuns, law: PowerLaw, support: Mask, judged: Mask
) -> HeldOut:
    watts = rows.values["power_w"]
    given, asked = runs.take(support), runs.take(judged)
    residuals = law_residuals(given, law.demand(given), watts[support])
    scalars = ShrunkScalars().updated(residuals, *_keys(rows.take(support).queries))
    factors = np.exp(scalars.correction(*_keys(rows.take(judged).queries)))
    demand = law.demand(asked).times(np.ones(len(asked)), factors)
    return HeldOut(asked, demand, watts[judged], "adapted")


def _keys(queries: Sequence[Query]) -> tuple[list[Device], list[str]]:
    return [q.device for q in queries], [kind_of(q) for q in queries]
