"""cloudprophet_runs: applications on virtual machines; experiments or applications held out."""

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.colocation.cloudprophet_runs import (
    NEIGHBOUR_COLUMNS,
    NEIGHBOURS,
    RUNS,
    CloudProphetRuns,
    relative_speeds,
    speeds,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.split import Mask
from forerun.data.workload import Benchmark
from forerun.models.colocation.application_booster import (
    EXPERIMENT,
    KEY,
    METRIC,
    SUITE,
)
from forerun.training.protocols import protocol as dp
from forerun.training.scores.task_scores import RelativeSpeed

SERVER: Final = Device(name="server", vendor="unknown", kind="vm")
"""Device without a spec sheet: the dataset does not describe the server."""
NOBODY: Final = "nobody"
"""Value of the main neighbour for a run without neighbours."""
SHARES: Final = np.linspace(0.0, 1.0, 201)
"""Grid for the share parameter of `fair_share`; at 1 all busy machines get equal parts."""


class CloudProphetProtocols(dp.DatasetProtocols):
    """Relative speed of runs whose neighbours change during the run.

    Folders are never evaluated with the current predictors: all folds are fitted from scratch.
    """

    dataset = "cloudprophet_runs"
    fits_any_folder = True
    reads: ClassVar = {
        RUNS: ("exp", "vm", "app", "load_param", "perf_value", "start_unix_s", *NEIGHBOUR_COLUMNS)
    }

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs with a result."""
        runs = bundle.table(RUNS)
        known = np.asarray(np.isfinite(speeds(runs)), dtype=np.bool_)
        return run_measurements(runs, known).take(known)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """Each experiment held out, then each application.

        Experiments that are not in the packaged table are evaluated by a fit on that table. The
        reference speeds of relative speeds come from the training experiments; a held-out
        application has no training rows, so its reference speeds come from all its own runs.
        """
        runs = bundle.table(RUNS)
        packaged = CloudProphetRuns().tidy(CloudProphetRuns().packaged())[RUNS]
        new = ~runs["exp"].isin(packaged["exp"]).to_numpy(dtype=np.bool_)
        if new.any():
            both = pd.concat([packaged, runs[new]], ignore_index=True)
            known = np.asarray(np.isfinite(speeds(both)), dtype=np.bool_)
            held_out = known & (np.arange(len(both)) >= len(packaged))
            yield from _folds_of(
                "leave_one_experiment_out", both, known & ~held_out, held_out, known
            )
            return
        for split in CloudProphetRuns().checked_splits(bundle):
            protocol = split.protocol.partition("/")[0]
            yield from _folds_of(
                protocol, runs, split.train, split.held_out, split.train | split.held_out
            )


def _folds_of(
    protocol: str, runs: pd.DataFrame, train: Mask, held_out: Mask, known: Mask
) -> Iterator[dp.Fold]:
    by_application = protocol == "leave_one_application_out"
    rows = run_measurements(runs, known if by_application else train)
    usable = np.isfinite(rows.values[METRIC])
    train_rows, held_out_rows = rows.take(train & usable), rows.take(held_out & usable)
    if len(train_rows) and len(held_out_rows):
        task = dp.Task(
            f"{protocol}/{METRIC}",
            METRIC,
            held_out_rows,
            baselines=rules(train_rows, held_out_rows),
            scores=[RelativeSpeed(held_out_rows.groups["run"])],
        )
        yield dp.Fold(protocol, train_rows, [task])


def run_measurements(runs: pd.DataFrame, reference: Mask) -> Measurements:
    """Runs as measured queries, in the order of the table.

    The features of a query are the load and, for each neighbour, the fraction of the run during
    which it was active. Nothing that is known only after a run is part of its query.

    Args:
        runs: n rows.
        reference: shape (n,), True for rows that reference speeds are computed from.
    """
    queries = []
    loads = runs["load_param"].to_numpy(dtype=np.float64)
    columns = runs[["app", *NEIGHBOUR_COLUMNS]].to_dict("records")
    for row, load in zip(columns, loads, strict=True):
        settings: dict[str, float | str] = {n: float(row[n]) for n in NEIGHBOUR_COLUMNS}
        settings[KEY] = str(row["app"])
        if np.isfinite(load):
            settings["log_load"] = float(np.log(load))
        queries.append(Query(Benchmark(SUITE, tuple(sorted(settings.items()))), SERVER))
    # No run was repeated, so each has its own key.
    started = runs["exp"] + " " + runs["vm"].astype(str) + " " + runs["start_unix_s"].astype(str)
    groups = {
        "run": started.to_numpy(dtype=np.str_),
        EXPERIMENT: runs["exp"].to_numpy(dtype=np.str_),
        KEY: runs["app"].to_numpy(dtype=np.str_),
        "machine": runs["vm"].astype(str).to_numpy(dtype=np.str_),
        "neighbour": main_neighbour(runs),
    }
    return Measurements(queries, {METRIC: relative_speeds(runs, reference)}, groups)


def main_neighbour(runs: pd.DataFrame) -> NDArray[np.str_]:
    """The application that was active longest as a neighbour of each run, shape (n,)."""
    fractions = runs[list(NEIGHBOURS)].to_numpy(dtype=np.float64)
    names = np.array([name.removeprefix("co_") for name in NEIGHBOURS])
    return np.where(fractions.max(axis=1) > 0.0, names[fractions.argmax(axis=1)], NOBODY)


def rules(train: Measurements, held_out: Measurements) -> dict[str, Column]:
    """Rule -> relative speed of the n held-out runs, (n,), fitted on the training rows only."""
    return {
        "rule_unslowed": np.ones(len(held_out)),
        "rule_fair_share": fair_share(train, held_out),
        "rule_neighbour_median": neighbour_median(train, held_out),
        "rule_application_median": dp.median_by(train, held_out, METRIC, (KEY,), ()),
    }


def fair_share(train: Measurements, held_out: Measurements) -> Column:
    """1 / (1 + s b) with b busy neighbours, shape (n,).

    The share s that a busy neighbour takes minimises the mean absolute error on the training rows.
    """
    busy, values = _busy(train), train.values[METRIC]
    errors = [np.abs(1.0 / (1.0 + share * busy) - values).mean() for share in SHARES]
    found: Column = 1.0 / (1.0 + SHARES[int(np.argmin(errors))] * _busy(held_out))
    return found


def neighbour_median(train: Measurements, held_out: Measurements) -> Column:
    """Median by application and main neighbour, else by main neighbour, else of all rows; (n,)."""
    return dp.median_by(train, held_out, METRIC, (KEY, "neighbour"), ("neighbour",), ())


def _busy(rows: Measurements) -> Column:
    return np.array([float(query.benchmark.by_name["co_busy_vms"]) for query in rows.queries])
