"""Held-out groups for the calibration of the power law: chips, jobs, and chips with few rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars
from forerun.models.conformal import held_out_folds
from forerun.models.power.intervals import HeldOut
from forerun.models.power.law import Demand, PowerLaw, unlimited_w
from forerun.models.power.runs import PowerRuns, are_kernels

SHOTS, DRAWS = 20, 5
"""Size of the support set of a held-out chip, and number of random support sets."""
JOB_FOLDS: Final = 5


def held_out_runs(
    runs: PowerRuns, watts: Column, folds: Iterable[Mask], known: str
) -> Iterator[HeldOut]:
    """Groups of runs in turn, with a law fitted to all other runs.

    Args:
        runs: n training runs.
        watts: (n,) measured average power, W.
        folds: masks (n,) of the groups.
        known: how well that law knows the devices of a group, a key of `DEVIATIONS`.
    """
    for held in folds:
        law, own = PowerLaw().fit(runs.take(~held), watts[~held]), runs.take(held)
        yield HeldOut(own, law.demand(own), watts[held], known)


def adapted_chips(rows: Measurements, runs: PowerRuns, seed: int) -> Iterator[HeldOut]:
    """Operators on held-out chips, after adaptation to random support sets of `SHOTS` operators.

    Args:
        rows: n training rows with `power_w`.
        runs: the inputs of the law for the same rows.
        seed: selects the support sets.
    """
    random = np.random.default_rng(seed)
    watts = rows.values["power_w"]
    kernels = are_kernels(rows.queries)
    for chip in held_out_folds(runs.chips):
        own = kernels & chip
        if own.sum() <= SHOTS:
            continue
        law = PowerLaw().fit(runs.take(~chip), watts[~chip])
        for _ in range(DRAWS):
            order = random.permutation(np.flatnonzero(own))
            support = np.zeros(len(rows), dtype=np.bool_)
            support[order[:SHOTS]] = True
            yield _adapted(rows, runs, law, support, own & ~support)


def law_residuals(runs: PowerRuns, demand: Demand, watts: Column) -> Column:
    """Log of the dynamic demand behind a measured power over that of the law, shape (n,).

    Args:
        runs: n runs.
        demand: their demand by the law.
        watts: (n,) measured power, W.
    """
    residuals: Column = np.log(unlimited_w(runs, demand, watts) / demand.dynamic_w)
    return residuals


def kind_of(query: Query) -> str:
    """Stratum of the few-shot correction: the kind of a single operator, or `network`."""
    if isinstance(query.workload, Kernel):
        return query.workload.operator.kind
    graph = query.network.graph
    return graph.operators[0].kind if len(graph) == 1 else "network"


def _adapted(
    rows: Measurements, runs: PowerRuns, law: PowerLaw, support: Mask, held: Mask
) -> HeldOut:
    """The held-out rows, with the demand by the law adapted to the support rows."""
    watts = rows.values["power_w"]
    support_runs, held_runs = runs.take(support), runs.take(held)
    residuals = law_residuals(support_runs, law.demand(support_runs), watts[support])
    scalars = ShrunkScalars().updated(residuals, *correction_keys(rows.take(support).queries))
    factors = np.exp(scalars.correction(*correction_keys(rows.take(held).queries)))
    demand = law.demand(held_runs).times(np.ones(len(held_runs)), factors)
    return HeldOut(held_runs, demand, watts[held], "adapted")


def correction_keys(queries: Sequence[Query]) -> tuple[list[Device], list[str]]:
    """Device of each of n queries, and the stratum of its few-shot correction."""
    return [q.device for q in queries], [kind_of(q) for q in queries]
