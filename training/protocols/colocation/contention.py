"""contention: relative speed P of co-located programs; unseen programs, neighbours and dynamics.

P is the time of a program in isolation over its time when co-located. Baselines are simple rules,
fitted only on the training rows of a fold. `contention_pilot` has our own noisy measurements from
before there was a collector: one row per run, with rates averaged over the run. No released
predictor is trained on it, so every folder is evaluated with folds of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.colocation.contention import ISOLATED, QUESTION, TARGETS, Contention
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.tables.contention import colocations, runs_with_one_load
from forerun.models.colocation.booster import PROFILE_RUN, ProgramMean
from forerun.models.colocation.host_forecast import demand, idle_window, mixing_of, put_together
from forerun.training.protocols import protocol as dp
from forerun.training.scores.task_scores import RelativeSpeed

NEIGHBOUR: Final = "neighbour"
PLACEMENT: Final = "cpus_shared"
"""Grouping key: how many CPUs a program and its neighbour share, `1` or `2`."""
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
    """Relative speed if programs on the same CPU get equal shares of it, shape (n,).

    In wall time, a program that uses the share c of a CPU in isolation gets min(c, 1/k) of a CPU
    that it shares with k - 1 others, so its relative speed is min(c, 1/k) / c. On a separate CPU,
    and in CPU time, it is 1.
    """
    if metric != "p_wall":
        return np.ones(len(held_out))
    wanted = np.array([demand(query.colocation.profile) for query in held_out.queries])
    shared = held_out.groups[PLACEMENT] == "1"
    return np.where(shared, np.minimum(wanted, 1.0 / RUNNABLE) / wanted, 1.0)


def reference_ratio(held_out: Measurements) -> Column:
    """CPU time of each run's isolated reference runs over the program's median, shape (n,).

    It is 1 if unknown.
    """
    known = [query.colocation.reference_ratio for query in held_out.queries]
    return np.array([1.0 if ratio is None else ratio for ratio in known])


def neighbour_median(train: Measurements, held_out: Measurements, metric: str) -> Column:
    """Median relative speed of the training rows with the same neighbour and placement, (n,).

    Without such rows, the median of the same placement; without these, the median of all co-located
    rows; without any, 1.
    """
    together = train.take(train.groups[NEIGHBOUR] != ISOLATED)
    found = dp.median_by(together, held_out, metric, (NEIGHBOUR, PLACEMENT), (PLACEMENT,), ())
    return np.nan_to_num(found, nan=1.0)


GUEST: Final = Device(name="guest", vendor="unknown", kind="vm")
"""Device without a spec sheet: the virtual machine is described by measurements on it."""
STEADY: Final = "isolated_times"
"""Grouping key: `steady` or `unsteady`, by MOST_VARIATION."""
MOST_VARIATION: Final = 0.4
"""Coefficient of variation of a program's isolated CPU times above which it is `unsteady`; every
protocol is also evaluated without such programs. Two of 18 programs exceed it (0.63 and 0.49, whose
memory just fits a cache shared with other guests); the next has 0.22, so any value in between
selects the same programs."""


class ContentionProtocols(dp.DatasetProtocols):
    """P in CPU and in wall time, with families, neighbours or dynamics held out."""

    dataset = "contention"
    reads: ClassVar = {
        "runs": ("victim", "family", "neighbour", "mode", "session", "started_at", "placement")
    }

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs with isolated reference runs."""
        rows = contention_measurements(bundle, profiled=True)
        return rows.take(np.isfinite(rows.values[TARGETS[0]]))

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """One fold for each split; held-out groups are pooled.

        Two protocols have additional tasks. `leave_one_family_out_profiled` evaluates programs that
        were profiled next to one load (the profiling runs are not scored). `pairs_ahead` evaluates
        pairs of programs from separate measurements of each, before they were co-located.
        """
        plain = contention_measurements(bundle)
        profiled = contention_measurements(bundle, profiled=True)
        free = ~runs_with_one_load(bundle.table("runs"))
        for split in Contention().checked_splits(bundle):
            protocol = split.protocol.partition("/")[0]
            families = protocol == "leave_one_family_out"
            # If a neighbour is held out, the profiles would contain held-out runs.
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
                yield dp.Fold(protocol, train, tasks)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Runs of unseen families, else of unseen neighbours, else of other sessions."""
        rows = contention_measurements(bundle)
        rows = rows.take(np.isfinite(rows.values[TARGETS[0]]))
        left = rows.groups["neighbour"] != "none"
        for key, protocol in (
            ("family", "leave_one_family_out"),
            ("neighbour", "leave_one_corunner_out"),
            ("session", "another_session"),
        ):
            new = left & ~dp.is_seen(rows, key, seen)
            left = left & ~new
            if new.any():
                yield from contention_tasks(protocol, None, rows.take(new))


def with_steady(held_out: Mapping[str, Measurements]) -> dict[str, Measurements]:
    """Held-out rows by protocol, and as `PROTOCOL_steady` only those of steady programs."""
    found = dict(held_out)
    for name, rows in held_out.items():
        found[f"{name}_steady"] = rows.take(rows.groups[STEADY] == "steady")
    return found


def contention_tasks(protocol: str, train: dp.Trained, held_out: Measurements) -> dp.Tasks:
    """One task for each metric, with rules and per-program baselines."""
    for metric in TARGETS:
        if not np.isfinite(held_out.values[metric]).any():
            continue
        baselines = {}
        if train is not None:
            mean = ProgramMean().fit(train).predict(held_out.queries)
            baselines["program_mean"] = mean.values[metric]
            baselines["program_median"] = dp.median_by(train, held_out, metric, ("program",), ())
            baselines |= rules(train, held_out, metric)
        scores = [RelativeSpeed(held_out.groups["repeated"])]
        yield dp.Task(f"{protocol}/{metric}", metric, held_out, baselines=baselines, scores=scores)


def ahead(held_out: Measurements, train: Measurements, measured: Measurements) -> Measurements:
    """Runs next to other programs, with host metrics forecast from both profiles.

    Args:
        held_out: held-out runs; those next to anything but a measured program are skipped.
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
    return replace(held_out.take(rows), queries=[Query(workload, GUEST) for workload in found])


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


def steadiness(runs: pd.DataFrame) -> NDArray[np.str_]:
    """`steady` or `unsteady` by the variation of the program's isolated CPU times, shape (n,).

    A program with fewer than two isolated runs, whose variation is unknown, is `steady`.
    """
    alone = runs[runs["neighbour"] == ISOLATED].groupby("victim")["cpu_s"]
    variation = runs["victim"].map(alone.std() / alone.mean()).to_numpy(dtype=np.float64)
    return np.where(variation > MOST_VARIATION, "unsteady", "steady")


TABLE: Final = "pilot_runs"
TICKS: Final = 100.0
PILOT_METRICS: Final[Mapping[str, tuple[str, float]]] = {
    **{f"cpu.{k}_share": (f"rate.stat.cpu.{k}", TICKS) for k in ("user", "nice", "system")},
    "cpu.softirq_share": ("rate.stat.cpu.softirq", TICKS),
    "cpu.steal_share": ("rate.stat.cpu.steal", TICKS),
    **{
        f"{cpus}.{kind}_share": (f"rate.stat.{cpu}.{kind}", TICKS)
        for cpus, cpu in (("own_cpu", "cpu1"), ("other_cpus", "cpu0"))
        for kind in ("user", "nice", "system", "steal")
    },
    "pressure.cpu.some_share": ("rate.psi.cpu.some", 1e6),
    "pressure.io.some_share": ("rate.psi.io.some", 1e6),
    "pressure.io.full_share": ("rate.psi.io.full", 1e6),
    "probe.latency_cycles": ("probe_lat", 1.0),
    "probe.evicted": ("probe_ev", 1.0),
    "probe.read_gbs": ("probe_bw", 1.0),
}
"""Host metric -> column and its divisor. System-wide disk rates are left out: the victim `io`
writes a fixed amount, and all other programs have zero in short runs."""

WORKING_SETS_MIB: Final[Mapping[str, float]] = {
    **{"chase0.5": 0.5, "chase3": 3.0, "chase64": 64.0, "stream": 96.0},
    **{"alu": 0.0, "matmul": 6.0, "sys": 0.06, "io": 0.25},
}
"""Working set of each victim in MiB, from the description of the program."""


class ContentionPilotProtocols(dp.DatasetProtocols):
    """P in CPU and wall time with an unseen co-runner.

    Folders are never evaluated with the current predictors: all folds are fitted from scratch.
    """

    dataset = "contention_pilot"
    fits_any_folder = True
    each_held_out: ClassVar = {"leave_one_corunner_out": "neighbour"}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All runs."""
        return pilot_measurements(bundle.table(TABLE)), dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """The same tasks as in `contention`."""
        return contention_tasks(protocol, train, held_out)


def pilot_measurements(runs: pd.DataFrame) -> Measurements:
    """Pilot runs with P: the median time of the victim's isolated runs over the time of the run."""
    alone = runs[runs["co"] == "none"].groupby("victim")
    profiles = {str(name): _profile(str(name), isolated_runs) for name, isolated_runs in alone}
    queries = []
    for row in runs.to_dict("records"):
        profile = profiles.get(str(row["victim"]), ProgramProfile(str(row["victim"])))
        values = tuple(float(row[c]) / unit for c, unit in PILOT_METRICS.values())
        window = HostWindow(tuple(PILOT_METRICS), (values,))
        queries.append(Query(Colocation(profile, window), GUEST))
    measured = {
        f"p_{kind}": (runs["victim"].map(alone[kind].median()) / runs[kind]).to_numpy(np.float64)
        for kind in ("cpu", "wall")
    }
    groups = {
        "program": runs["victim"].to_numpy(dtype=np.str_),
        "family": runs["victim"].to_numpy(dtype=np.str_),
        "neighbour": runs["co"].to_numpy(dtype=np.str_),
        "cpus_shared": np.where(runs["co"].str.endswith("_same"), "1", "2"),
        "repeated": (runs["victim"] + " " + runs["co"]).to_numpy(dtype=np.str_),
    }
    return Measurements(queries, measured, groups)


def _profile(name: str, alone: pd.DataFrame) -> ProgramProfile:
    middle = alone[[column for column, _ in PILOT_METRICS.values()]].median()
    values = tuple(float(middle[c]) / unit for c, unit in PILOT_METRICS.values())
    share = float(min(1.0, alone["cpu"].median() / alone["wall"].median()))
    window = HostWindow(tuple(PILOT_METRICS), (values,))
    spread = float(np.log(alone["cpu"] / alone["cpu"].median()).abs().median())
    size = WORKING_SETS_MIB.get(name)
    return ProgramProfile(name, window, HostWindow(), size, share, spread)
