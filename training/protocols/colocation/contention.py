"""contention: relative speed P of co-located programs; unseen programs, neighbours and dynamics.

P is the time of a program when isolated over its time when co-located.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.colocation.contention import ISOLATED, QUESTION, TARGETS, Contention
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.tables.contention import colocations, runs_with_one_load
from forerun.models.colocation.booster import ProgramMean
from forerun.models.colocation.features import idle_window
from forerun.models.colocation.held_out_runs import PROFILE_RUN
from forerun.models.colocation.host_forecast import mixing_of, put_together
from forerun.training.protocols.colocation.contention_rules import rules
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

if TYPE_CHECKING:
    import pandas as pd

GUEST: Final = Device(name="guest", vendor="unknown", kind="vm")
"""Device without a spec sheet: the virtual machine is described by measurements on it."""
STEADY: Final = "isolated_times"
"""Grouping key: `steady` or `unsteady`, by MOST_VARIATION."""
MOST_VARIATION: Final = 0.4
"""Coefficient of variation of a program's isolated CPU times above which it is `unsteady`; every
protocol is also evaluated without such programs. Two of 18 programs exceed it (0.63 and 0.49, whose
memory just fits a cache shared with other guests); the next has 0.22, so any value in between
selects the same programs."""


class ContentionProtocols(DatasetProtocols):
    """P in CPU and in wall time, with families, neighbours or dynamics held out."""

    dataset = "contention"
    reads = MappingProxyType(
        {"runs": ("victim", "family", "neighbour", "mode", "session", "started_at", "placement")}
    )

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs with isolated reference runs."""
        rows = contention_measurements(bundle, profiled=True)
        return rows.take(np.isfinite(rows.values[TARGETS[0]]))

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each split; held-out groups are pooled.

        The fits of two protocols have further tasks. `leave_one_family_out_profiled` evaluates
        programs that were profiled with a load as the neighbour (the profiling runs are not
        scored). `pairs_ahead` evaluates pairs of programs, each measured on its own, before they
        were co-located.
        """
        plain = contention_measurements(bundle)
        profiled = contention_measurements(bundle, profiled=True)
        free = ~runs_with_one_load(bundle.table("runs"))
        for split in Contention().checked_splits(bundle):
            protocol = split.protocol.partition("/")[0]
            families = protocol == "leave_one_family_out"
            # With a neighbour held out, profiles would contain held-out runs.
            train = (profiled if families else plain).take(split.train)
            held_out = {protocol: plain.take(split.held_out)}
            if families:
                held_out[f"{protocol}_profiled"] = profiled.take(split.held_out & free)
            elif protocol == "leave_one_corunner_out":
                held_out["pairs_ahead"] = ahead(held_out[protocol], train, plain)
            tasks = [
                task
                for name, rows in with_steady(held_out).items()
                if len(rows)
                for task in contention_tasks(name, train, rows)
            ]
            if len(train) and tasks:
                yield Fold(protocol, train, tasks)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Runs of unseen families, else of unseen neighbours, else of other sessions."""
        rows = contention_measurements(bundle)
        rows = rows.take(np.isfinite(rows.values[TARGETS[0]]))
        left = rows.groups["neighbour"] != "none"
        for key, protocol in (
            ("family", "leave_one_family_out"),
            ("neighbour", "leave_one_corunner_out"),
            ("session", "another_session"),
        ):
            new = left & ~np.isin(rows.groups[key], list(seen.get(key, ())))
            left = left & ~new
            if new.any():
                yield from contention_tasks(protocol, None, rows.take(new))


def with_steady(held_out: Mapping[str, Measurements]) -> dict[str, Measurements]:
    """Held-out rows by protocol, and as `PROTOCOL_steady` those of steady programs alone."""
    found = dict(held_out)
    for name, rows in held_out.items():
        found[f"{name}_steady"] = rows.take(rows.groups[STEADY] == "steady")
    return found


def contention_tasks(
    protocol: str, train: Measurements | None, held_out: Measurements
) -> Iterator[Task]:
    """One task for each metric, with rules and with baselines by program."""
    for metric in TARGETS:
        if not np.isfinite(held_out.values[metric]).any():
            continue
        baselines = {}
        if train is not None:
            mean = ProgramMean().fit(train).predict(held_out.queries)
            baselines["program_mean"] = mean.values[metric]
            baselines["program_median"] = program_median(train, held_out, metric)
            baselines |= rules(train, held_out, metric)
        repeats = held_out.groups["repeated"]
        yield Task(f"{protocol}/{metric}", metric, held_out, baselines=baselines, repeats=repeats)


def program_median(train: Measurements, held_out: Measurements, metric: str) -> Column:
    """Median of the program's training rows, of all training rows where it has none; shape (n,).

    Args:
        train: training rows.
        held_out: n held-out runs.
        metric: `p_cpu` or `p_wall`.
    """
    values, programs = train.values[metric], train.groups["program"]
    known = {name: float(np.nanmedian(values[programs == name])) for name in np.unique(programs)}
    common = float(np.nanmedian(values))
    return np.array([known.get(name, common) for name in held_out.groups["program"]])


def ahead(held_out: Measurements, train: Measurements, measured: Measurements) -> Measurements:
    """Runs with other programs as neighbours, with host metrics forecast from both profiles.

    Args:
        held_out: held-out runs; those with neighbours that are no measured program are left
            out.
        train: training rows, on which the combination of host metrics and the metrics of an idle
            host are fitted.
        measured: rows that hold the profiles of programs.
    """
    train_workloads = [query.colocation for query in train.queries]
    idle = idle_window(train.queries)
    mixing = mixing_of(train_workloads, train.groups["neighbour"], idle)
    workloads = [query.colocation for query in (*held_out.queries, *measured.queries)]
    others = np.full(len(measured), "none")
    neighbours = np.concatenate([held_out.groups["neighbour"], others])
    cpus = held_out.groups["cpus_shared"].astype(np.float64)
    rows, found = put_together(workloads, neighbours, cpus, idle, mixing)
    return replace(held_out.take(rows), queries=[Query(one, GUEST) for one in found])


def contention_measurements(bundle: Bundle, *, profiled: bool = False) -> Measurements:
    """Runs as measured co-located programs, in the order of the table.

    Args:
        bundle: bundle with the tables `runs` and `samples`.
        profiled: whether profiles of programs include their relative speed next to one load.
    """
    runs = bundle.table("runs")
    workloads = colocations(runs, bundle.table("samples"), profiled=profiled)
    queries = [Query(workload, GUEST) for workload in workloads]
    keys = {"victim": "program", "family": "family", "neighbour": "neighbour", "mode": "mode"}
    groups = {new: runs[old].astype(str).to_numpy(dtype=np.str_) for old, new in keys.items()}
    groups["session"] = (runs["session"] + " " + runs["started_at"].str[:10]).to_numpy(np.str_)
    groups["repeated"] = runs[list(QUESTION)].astype(str).agg(" ".join, axis=1).to_numpy(np.str_)
    groups["cpus_shared"] = np.where(runs["placement"] == "same", "1", "2")
    groups[STEADY] = steadiness(runs)
    groups["profile"] = np.where(runs_with_one_load(runs), PROFILE_RUN, "")
    values = {metric: runs[metric].to_numpy(dtype=np.float64) for metric in TARGETS}
    return Measurements(queries, values, groups)


def steadiness(runs: "pd.DataFrame") -> NDArray[np.str_]:
    """`steady` or `unsteady` by the variation of the program's isolated CPU times, shape (n,).

    A program with fewer than two isolated runs, whose variation is unknown, is `steady`.
    """
    alone = runs[runs["neighbour"] == ISOLATED].groupby("victim")["cpu_s"]
    variation = runs["victim"].map(alone.std() / alone.mean()).to_numpy(dtype=np.float64)
    return np.where(variation > MOST_VARIATION, "unsteady", "steady")
