"""contention_pilot: our own noisy pilot measurements, with co-runners held out.

The pilot was measured before there was a collector: one row for each run, with rates over the run.
No released predictor is trained on it, so every folder is evaluated with folds of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.training.protocols.colocation.contention import (
    GUEST,
    ContentionProtocols,
    contention_tasks,
)
from forerun.training.protocols.protocol import Fold, Task

TABLE: Final = "pilot_runs"
PROTOCOL: Final = "leave_one_corunner_out"
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
"""Host metric -> column and its divisor. Disk rates of the whole system are left out: the writes of
the victim `io` are fixed, and all others are zero in short runs."""

WORKING_SETS_MIB: Final[Mapping[str, float]] = {
    **{"chase0.5": 0.5, "chase3": 3.0, "chase64": 64.0, "stream": 96.0},
    **{"alu": 0.0, "matmul": 6.0, "sys": 0.06, "io": 0.25},
}
"""Working set of each victim in MiB, from the description of the program."""


class ContentionPilotProtocols(ContentionProtocols):
    """P in CPU and wall time with a co-runner that is not in the training set."""

    dataset = "contention_pilot"
    fits_any_folder = True
    reads = MappingProxyType({})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs."""
        return pilot_measurements(bundle.table(TABLE))

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each held-out co-runner, including `none`."""
        rows = pilot_measurements(bundle.table(TABLE))
        neighbours = rows.groups["neighbour"]
        for name in np.unique(neighbours):
            out = neighbours == name
            train, held_out = rows.take(~out), rows.take(out)
            if len(train):
                yield Fold(PROTOCOL, train, list(contention_tasks(PROTOCOL, train, held_out)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """No tasks: on every folder, all folds are fitted from scratch."""
        return iter(())


def pilot_measurements(runs: pd.DataFrame) -> Measurements:
    """Runs of the pilot with P, the median time of the victim's isolated runs over their time."""
    alone = runs[runs["co"] == "none"].groupby("victim")
    profiles = {str(name): _profile(str(name), mine) for name, mine in alone}
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
