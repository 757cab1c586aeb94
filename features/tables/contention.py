"""Converts tables of `contention` to co-located programs: equal windows, profiles of lone runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from forerun.data.collectors.interference.neighbours import ONE_LOAD
from forerun.data.collectors.interference.victims import VICTIMS
from forerun.data.datasets.colocation.contention import ISOLATED, windows
from forerun.data.lazy import pd
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import HOST_METRICS

SHARE_WITH = 0.98
"""Share of the runs that must be at least as long as the windows."""
MOST_SECONDS = 30
KINDS = ("user", "nice", "system", "steal", "idle")


def colocations(
    runs: "pd.DataFrame",
    samples: "pd.DataFrame",
    seconds: int | None = None,
    *,
    profiled: bool = False,
    cpu: int | None = None,
) -> list[Colocation]:
    """One workload per run, in order.

    The number of seconds inside a run reveals how long it took, so windows are cut to a length that
    nearly all runs have; the few shorter runs get no window.

    Args:
        runs: n runs.
        samples: readings of those runs.
        seconds: length of the windows; if None, the longest that nearly all runs have.
        profiled: whether profiles include the relative speed with ONE_LOAD. The runs that it is
            computed from must then not be held out.
        cpu: CPU that the programs are pinned to; if None the last one, as in the collector.
    """
    length = equal_seconds(runs, samples) if seconds is None else seconds
    frame = with_own_cpu(samples, cpu)
    names = tuple(name for name in HOST_METRICS if name in frame.columns)
    values = windows(runs, frame, length, names)
    read = np.asarray(np.isfinite(values).any(axis=2), dtype=np.bool_)
    whole: NDArray[np.bool_] = read.sum(axis=1) == length
    profiles = _profiles(runs, values, whole, names, _empty_host(runs, frame, names))
    if profiled:
        profiles = {
            name: replace(profile, p_cpu_beside_cache=_with_one_load(runs[runs["victim"] == name]))
            for name, profile in profiles.items()
        }
    ratios = _reference_ratios(runs)
    workloads = []
    for row, victim in enumerate(runs["victim"].astype(str)):
        seconds_of = (
            tuple(tuple(map(float, second)) for second in values[row]) if whole[row] else ()
        )
        window, ratio = HostWindow(names, seconds_of), float(ratios[row])
        known = ratio if np.isfinite(ratio) else None
        workloads.append(Colocation(profiles[victim], window, reference_ratio=known))
    return workloads


def runs_with_one_load(runs: "pd.DataFrame") -> NDArray[np.bool_]:
    """Flag for each of n runs: whether its neighbour was ONE_LOAD."""
    found = np.ones(len(runs), dtype=np.bool_)
    for column, value in asdict(ONE_LOAD).items():
        found &= (runs[column] == value).to_numpy()
    return found


def equal_seconds(runs: "pd.DataFrame", samples: "pd.DataFrame") -> int:
    """Number of complete seconds inside nearly all runs, at least 1."""
    inside = samples[(samples["phase"] == "inside") & ~samples["gap"].astype(bool)]
    counts = inside.groupby("run").size().reindex(runs["run"]).fillna(0).to_numpy()
    if not len(counts):
        return 1
    return int(np.clip(np.quantile(counts, 1.0 - SHARE_WITH), 1, MOST_SECONDS))


def with_own_cpu(samples: "pd.DataFrame", cpu: int | None = None) -> "pd.DataFrame":
    """Samples with shares of the CPU that programs are pinned to, and of all others.

    Args:
        samples: with columns of single CPUs.
        cpu: CPU that they are pinned to; if None the last one, as in the collector.
    """
    cpus = sorted(
        {
            int(name[3 : name.index(".")])
            for name in map(str, samples.columns)
            if name.startswith("cpu") and name[3 : name.find(".")].isdigit()
        }
    )
    pinned = cpus[-1] if cpus and cpu is None else cpu
    if len(cpus) < 2 or pinned not in cpus:
        return samples
    more = {}
    for kind in KINDS:
        columns = [f"cpu{each}.{kind}_share" for each in cpus]
        if all(column in samples for column in columns):
            own_column = f"cpu{pinned}.{kind}_share"
            more[f"own_cpu.{kind}_share"] = samples[own_column]
            others = [column for column in columns if column != own_column]
            more[f"other_cpus.{kind}_share"] = samples[others].sum(axis=1)
    return samples.assign(**more)


def _profiles(
    runs: "pd.DataFrame",
    values: NDArray[np.float32],
    whole: NDArray[np.bool_],
    names: Sequence[str],
    empty: HostWindow,
) -> Mapping[str, ProgramProfile]:
    """Victim -> profile from its isolated runs."""
    sizes = {each.name: each.working_set_mib for each in VICTIMS}
    alone = (runs["neighbour"] == ISOLATED).to_numpy()
    victims = runs["victim"].astype(str).to_numpy()
    share = (runs["cpu_s"] / runs["wall_s"]).to_numpy(dtype=np.float64)
    found = {}
    for victim in np.unique(victims):
        isolated = alone & (victims == victim) & np.isfinite(share)
        usual = float(min(1.0, np.median(share[isolated]))) if isolated.any() else None
        window = HostWindow(tuple(names), _middle(values[isolated & whole]))
        facts = {
            "working_set_mib": sizes.get(str(victim)),
            "cpu_share": usual,
            "cpu_spread": _spread(runs["p_cpu"].to_numpy(dtype=np.float64)[isolated]),
        }
        found[str(victim)] = ProgramProfile(str(victim), window, empty, **facts)
    return found


def _reference_ratios(runs: "pd.DataFrame") -> NDArray[np.float64]:
    """CPU time of each run's reference over the median of its program's isolated runs, (n,).

    Both come from isolated runs only, so no co-located run is read; NaN where either is missing.
    """
    if "reference_cpu_s" not in runs.columns:
        return np.full(len(runs), np.nan)
    alone = runs[runs["neighbour"] == ISOLATED]
    usual = runs["victim"].map(alone.groupby("victim")["cpu_s"].median())
    return np.asarray(runs["reference_cpu_s"] / usual, dtype=np.float64)


def _with_one_load(runs: "pd.DataFrame") -> float | None:
    """Median relative speed, by CPU time, of one victim's runs with ONE_LOAD; None without any."""
    p_cpu = runs.loc[runs_with_one_load(runs), "p_cpu"].dropna()
    return float(p_cpu.median()) if len(p_cpu) else None


def _spread(p_cpu: NDArray[np.float64]) -> float | None:
    """Median absolute logarithm of P of isolated runs, relative to those nearest in time."""
    known = p_cpu[np.isfinite(p_cpu)]
    return float(np.median(np.abs(np.log(known)))) if len(known) > 2 else None


def _empty_host(runs: "pd.DataFrame", samples: "pd.DataFrame", names: Sequence[str]) -> HostWindow:
    """Median over seconds without victim or neighbour, at the ends of sessions."""
    free = np.zeros(len(samples), dtype=np.bool_)
    sessions = samples["session"].astype(str).to_numpy()
    begun, over = samples["from_s"].to_numpy(), samples["to_s"].to_numpy()
    for session, of_session in runs.groupby("session"):
        first, last = of_session["spawned_s"].min(), of_session["stopped_s"].max()
        free |= (sessions == str(session)) & ((over <= first) | (begun >= last))
    values = samples.loc[free, list(names)].to_numpy(dtype=np.float32)
    return HostWindow(tuple(names), _middle(values[None]))


def _middle(values: NDArray[np.float32]) -> tuple[tuple[float, ...], ...]:
    """Median over n x t x c values, as a window of one second; empty without values."""
    if not values.size:
        return ()
    flat = values.reshape(-1, values.shape[2]).astype(np.float64)
    known = ~np.isnan(flat)
    return (
        tuple(
            float(np.median(flat[known[:, c], c])) if known[:, c].any() else float("nan")
            for c in range(flat.shape[1])
        ),
    )
