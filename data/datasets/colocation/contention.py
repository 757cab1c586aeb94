"""Fixed work co-located with neighbours on a virtual machine, measured by this project.

One row of `runs` is one run of a victim with one neighbour. Its relative speed P is its time alone
over its time in this run. `samples` are readings of the machine on an independent clock, `probe`
are ticks of the cache probe. The protocols follow Alioth (IPDPS 2023), which holds out
applications.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Mask
from forerun.data.datasets.packaged import MeasuredDataset
from forerun.data.lazy import pd

TARGETS: Final = ("p_cpu", "p_wall")
ISOLATED: Final = "none"
QUESTION: Final = ("victim", "neighbour", "intensity", "placement", "mode")
KEYS: Final = ("run", "session", "family", "repeat", "order", "started_at", "status", *QUESTION)
"""Columns of `runs` to group and split by; none is a feature, and all others are outcomes."""

PLACES: Final = ("session", "run", "phase", "second", "from_s", "to_s", "gap", "cost_ms")
"""Columns of `samples` that locate a reading; none is a feature."""

FEATURE_GROUPS: Final = (
    *("cpu.", "pressure.", "probe.", "task.", "disk.in_flight", "disk.io_share"),
    *("disk.weighted_share", "stat.procs_", "load.running", "sched.wait_share", "cgroup.pressure."),
)
"""Prefixes of columns of `samples` that may be features: shares of time, queue lengths, and probe
timings. Rates of counts are excluded: a victim's work is fixed, so its faults, forks, switches,
interrupts, packets and bytes per second reveal its time, which is the label.
"""


class Contention(MeasuredDataset, declared="contention"):
    """Leave one family of victims or one neighbour out; static to dynamic neighbours."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Runs with isolated reference runs, and of these the co-located ones, by mode."""
        known = rows[list(TARGETS)].notna().all(axis=1).to_numpy()
        colocated = known & (rows["neighbour"] != ISOLATED).to_numpy()
        dynamic = (rows["mode"] == "dynamic").to_numpy()
        modes = {"static": known & ~dynamic, "dynamic": colocated & dynamic}
        return {"": known, "colocated": colocated, **modes}


def features(samples: "pd.DataFrame") -> list[str]:
    """Columns of `samples` that may be features, in order.

    Args:
        samples: the table.
    """
    return [str(name) for name in samples.columns if str(name).startswith(FEATURE_GROUPS)]


def windows(
    runs: "pd.DataFrame",
    samples: "pd.DataFrame",
    seconds: int,
    columns: Sequence[str] | None = None,
) -> NDArray[np.float32]:
    """The first seconds strictly inside each run, the same number for every run.

    Windows have equal length because the number of readings inside a run would reveal its time.

    Args:
        runs: n runs.
        samples: readings of those runs, possibly also of others.
        seconds: number of readings per run, t.
        columns: c columns; those of `features` when None.

    Returns:
        n x t x c values; NaN if a reading or a source is missing, or the run was too short.
    """
    names = features(samples) if columns is None else list(columns)
    inside = samples[(samples["phase"] == "inside") & ~samples["gap"]]
    inside = inside.sort_values(["run", "from_s"], kind="stable")
    values = inside[names].to_numpy(dtype=np.float32)
    nth = inside.groupby("run").cumcount().to_numpy()
    position = {run: row for row, run in enumerate(runs["run"])}
    window = np.full((len(runs), seconds, len(names)), np.nan, dtype=np.float32)
    for run, step, row in zip(inside["run"], nth, values, strict=True):
        if step < seconds and run in position:
            window[position[run], step] = row
    return window
