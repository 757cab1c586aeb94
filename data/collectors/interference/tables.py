"""Tidy tables from the journal of a collection, finished or not, and their datasheet.

`runs`: one row per run, with its isolated reference. `samples`: one row per sampler interval, with
counters as rates per second. `probe`: one row per probe tick. Separately, under `journal/`,
`cumulative`: the raw counters of each reading. Times are seconds since the session began.
"""

import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.collectors.interference.cache_probe import effective_mib, ticks
from forerun.data.collectors.runner.journal import LineJournal
from forerun.data.collectors.system.procfs import is_gap, rates
from forerun.data.lazy import pd
from forerun.data.markdown import markdown


def noise(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Coefficient of variation of each victim's isolated runs.

    Args:
        runs: the table.

    Returns:
        Rows `victim`, `isolated` (runs), `cpu_s`, `wall_s` (medians), `cv_cpu`, `cv_wall` of the
        times, `cv_p_cpu`, `cv_p_wall` of P, which is what is left after the nearest-runs reference.
    """
    alone = runs[(runs["neighbour"] == "none") & (runs["status"] == "ok")]
    grouped = alone.groupby("victim")
    table = grouped[["cpu_s", "wall_s"]].median()
    table.insert(0, "isolated", grouped.size())
    for kind in ("cpu", "wall"):
        for name, column in ((f"cv_{kind}", f"{kind}_s"), (f"cv_p_{kind}", f"p_{kind}")):
            table[name] = grouped[column].std() / grouped[column].mean()
    return table.reset_index()


def datasheet(tables: Mapping[str, "pd.DataFrame"], sessions: Sequence[Mapping[str, Any]]) -> str:
    """Text of the collection's README.md."""
    runs = tables["runs"]
    fine = runs[runs["status"] == "ok"]
    return markdown(
        "forerun.data.collectors.interference",
        "tables.md",
        runs=runs,
        failed=len(runs) - len(fine),
        tables=tables,
        sessions=sessions,
        effective_mib=effective_mib,
        costs={
            "a reading of all sources": tables["samples"]["cost_ms"].dropna(),
            "a tick of the probe": tables["probe"]["cpu_ms"].dropna(),
        },
        slower=[row["probe_slowdown"] for row in sessions if row.get("probe_slowdown")],
        noise=noise(runs),
        ambient={
            "busy before a run": _percentiles(runs["ambient_share"].dropna()),
            "used by others during the work": _percentiles(runs["others_share"].dropna()),
        },
        effects=_effects(fine),
        missing=sorted(
            {
                f"{name}: {source.get('reason', 'not reported')}"
                for session in sessions
                for name, source in session["sources"].items()
                if not source["available"]
            }
        ),
    )


def _percentiles(known: "pd.Series[float]") -> list[float]:
    return np.percentile(known, (50, 10, 90)).tolist() if len(known) else []


def _effects(fine: "pd.DataFrame") -> "pd.DataFrame":
    keys = ["neighbour", "intensity", "placement", "mode"]
    colocated = fine[fine["neighbour"] != "none"].groupby(keys)
    table = colocated[["p_cpu", "p_wall"]].median()
    return table.assign(runs=colocated.size()).reset_index()


NAME: Final = "contention"
NEAREST: Final = 5
"""Isolated runs of the same victim, nearest in time, whose median is a run's reference."""

MOST_TICKS_SHORT: Final = 0.5
"""An interval with less than this share of its probe ticks has no probe median."""

TEXTS: Final = "victim family neighbour intensity placement mode session started_at status".split()
TIMES: Final = "spawned start end stopped".split()
NUMBERS: Final = (
    "units user_s system_s run_delay_s voluntary_switches involuntary_switches minor_faults "
    "major_faults ambient_share others_share neighbour_cpu_s on_share"
).split()
PROBED: Final = ("latency_ns", "near_ns", "evicted", "read_gbs", "late_ms")


def write_tables(folder: Path, interval_s: float) -> dict[str, "pd.DataFrame"]:
    """Make the tables of a journal and write them, with datasheet and sources, into the folder.

    Args:
        folder: folder of the collection; its journal is under `journal/`.
        interval_s: interval of the sampler's clock, seconds.

    Returns:
        Tables by name; empty where nothing was journaled yet.
    """
    tables = build(folder / "journal", interval_s)
    if not len(tables["runs"]):
        return {}
    cumulative = tables.pop("cumulative")
    cumulative.to_parquet(folder / "journal" / "cumulative.parquet", index=False)
    sessions = [
        row
        for path in _sessions(folder / "journal")
        for row in LineJournal(path / "session.jsonl").rows()
    ]
    draft = Bundle.write(
        folder / ".draft",
        NAME,
        tables,
        documents={"sources": {"sessions": sessions}},
        datasheet=datasheet(tables, sessions),
        facts={"licence": "as this repository", "source": "measured by `forerun collect`"},
    ).folder
    for path in sorted(draft.iterdir()):
        path.replace(folder / path.name)
    shutil.rmtree(draft)
    return tables


def build(journal: Path, interval_s: float) -> dict[str, "pd.DataFrame"]:
    """Tables `runs`, `samples`, `cumulative` and `probe` of all sessions.

    Args:
        journal: folder with one folder per session.
        interval_s: interval of the sampler's clock, seconds.
    """
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in ("runs", *_SAMPLED)}
    begun = 0
    for session in _sessions(journal):
        readings = list(LineJournal(session / "samples.jsonl").rows())
        rows = list(LineJournal(session / "runs.jsonl").rows())
        if not readings:
            continue
        zero = float(readings[0]["t"])
        runs = _runs(rows, zero, begun)
        probe = _probe(session / "probe.csv", zero, runs)
        samples, cumulative = _samples(readings, zero, runs, interval_s)
        parts["runs"].append(runs)
        parts["probe"].append(probe)
        parts["samples"].append(_with_probe(samples, probe, interval_s))
        parts["cumulative"].append(cumulative)
        for name in _SAMPLED:
            parts[name][-1].insert(0, "session", session.name)
        begun += len(runs)
    joined = {
        name: pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        for name, frames in parts.items()
    }
    if len(joined["runs"]):
        joined["runs"] = with_references(joined["runs"])
    return joined


def with_references(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Runs with `reference_cpu_s`, `reference_wall_s`, `p_cpu` and `p_wall`.

    The reference is the median of the NEAREST isolated runs of the same victim in the same session,
    nearest in time, without the run itself; P is the reference over the run's own time, and NaN
    for runs that failed or have no reference.
    """
    runs = runs.copy()
    ideal = {kind: np.full(len(runs), np.nan) for kind in ("cpu", "wall")}
    actual = {kind: runs[f"{kind}_s"].to_numpy(dtype=np.float64) for kind in ideal}
    start = runs["start_s"].to_numpy(dtype=np.float64)
    fine = runs["status"].to_numpy() == "ok"
    alone = fine & (runs["neighbour"].to_numpy() == "none")
    for _, rows in runs.groupby(["session", "victim"]).indices.items():
        isolated = rows[alone[rows]]
        for row in rows[fine[rows]]:
            others = isolated[isolated != row]
            if not len(others):
                continue
            order = np.argsort(np.abs(start[others] - start[row]), kind="stable")
            nearest = others[order[:NEAREST]]
            for kind in ideal:
                ideal[kind][row] = np.median(actual[kind][nearest])
    for kind in ideal:
        runs[f"reference_{kind}_s"] = ideal[kind]
        runs[f"p_{kind}"] = ideal[kind] / actual[kind]
    return runs


_SAMPLED: Final = ("samples", "cumulative", "probe")


def _sessions(journal: Path) -> list[Path]:
    return sorted(path for path in journal.glob("*") if path.is_dir())


def _runs(rows: Sequence[Mapping[str, Any]], zero: float, begun: int) -> "pd.DataFrame":

    runs = pd.DataFrame({"run": np.arange(begun, begun + len(rows), dtype=np.int64)})
    for name in TEXTS:
        runs[name] = pd.Series([str(row.get(name, "")) for row in rows], dtype="str")
    for name in ("repeat", "order"):
        runs[name] = np.array([int(row[name]) for row in rows], dtype=np.int64)
    for name in NUMBERS:
        runs[name] = np.array([row.get(name, np.nan) for row in rows], dtype=np.float64)
    for name in TIMES:
        values = [row.get(name, np.nan) for row in rows]
        runs[f"{name}_s"] = np.array(values, dtype=np.float64) - zero
    runs["wall_s"] = runs["end_s"] - runs["start_s"]
    runs["cpu_s"] = runs["user_s"] + runs["system_s"]
    return runs


def _samples(
    readings: Sequence[Mapping[str, Any]], zero: float, runs: "pd.DataFrame", interval_s: float
) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Rates per second between consecutive readings, and the readings themselves."""
    times = np.array([float(row["t"]) for row in readings]) - zero
    grown = []
    for before, after in pairwise(readings):
        counted = rates(before["cumulative"], after["cumulative"], after["t"] - before["t"])
        if before["task"] != after["task"]:
            counted = {name: v for name, v in counted.items() if not name.startswith("task.")}
        grown.append({_a_second(name): v for name, v in counted.items()} | after["gauges"])
    frame = pd.DataFrame(grown, dtype=np.float64)
    frame = frame[sorted(frame.columns)]
    raw = pd.DataFrame([row["cumulative"] for row in readings], dtype=np.float64)
    raw.insert(0, "t_s", times)
    from_s, to_s = times[:-1], times[1:]
    gap = np.array([is_gap(s, interval_s) for s in to_s - from_s], dtype=np.bool_)
    number, phase = placed(from_s, to_s, runs)
    starts = runs.set_index("run")["start_s"].reindex(number).to_numpy()
    second = np.floor((from_s - starts) / interval_s)
    head = {"run": number, "phase": phase, "second": second, "from_s": from_s, "to_s": to_s}
    head["cost_ms"] = np.array([row.get("cpu_ms", np.nan) for row in readings[1:]])
    return pd.concat([pd.DataFrame({**head, "gap": gap}), frame.astype(np.float32)], axis=1), raw


def placed(
    from_s: NDArray[np.float64], to_s: NDArray[np.float64], runs: "pd.DataFrame"
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """The run that each interval belongs to, and where in it.

    An interval is `inside` where it lies wholly within the work, `before` or `after` where it does
    not touch the work, `edge` where it holds a start or an end. It belongs to the run whose work it
    touches, else to the nearest.

    Args:
        from_s: n times at which the intervals begin.
        to_s: n times at which they end.
        runs: with `run`, `start_s` and `end_s`.

    Returns:
        n run numbers (NaN where there is no run), n phases.
    """
    number = np.full(len(from_s), np.nan)
    phase = np.full(len(from_s), "before", dtype="<U6")
    done = runs[runs["end_s"].notna()]
    if not len(done):
        return number, phase
    start, end = done["start_s"].to_numpy(), done["end_s"].to_numpy()
    for i, (a, b) in enumerate(zip(from_s, to_s, strict=True)):
        away = np.maximum(np.maximum(start - b, a - end), 0.0)
        touched = np.minimum(end, b) - np.maximum(start, a)
        nearest = int(np.lexsort((-touched, away))[0])
        number[i] = done["run"].iat[nearest]
        if start[nearest] <= a and b <= end[nearest]:
            phase[i] = "inside"
        elif away[nearest] == 0:
            phase[i] = "edge"
        else:
            phase[i] = "after" if a >= end[nearest] else "before"
    return number, phase


def _probe(path: Path, zero: float, runs: "pd.DataFrame") -> "pd.DataFrame":

    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    rows = list(ticks(text))
    at = np.array([row["t_s"] for row in rows], dtype=np.float64) - zero
    number, phase = placed(at, at, runs)
    columns = {name: np.array([r[name] for r in rows], dtype=np.float32) for name in _PROBE_COLUMNS}
    return pd.DataFrame({"run": number, "phase": phase, "t_s": at, **columns})


_PROBE_COLUMNS: Final = (*PROBED, "cpu_ms", "limit_ns")


def _with_probe(
    samples: "pd.DataFrame", probe: "pd.DataFrame", interval_s: float
) -> "pd.DataFrame":
    """Samples with the median of the probe's ticks in each interval, NaN where they are missing."""
    at = probe["t_s"].to_numpy()
    first = np.searchsorted(at, samples["from_s"].to_numpy())
    last = np.searchsorted(at, samples["to_s"].to_numpy())
    span = float(np.median(np.diff(at))) if len(at) > 1 else np.inf
    least = MOST_TICKS_SHORT * interval_s / span
    for name in PROBED:
        values = probe[name].to_numpy()
        medians = [
            float(np.median(values[a:b])) if b - a >= max(1.0, least) else np.nan
            for a, b in zip(first, last, strict=True)
        ]
        samples[f"probe.{name}"] = np.array(medians, dtype=np.float32)
    return samples


def _a_second(name: str) -> str:
    """Name of a counter's rate: seconds per second are a share of one CPU."""
    return f"{name.removesuffix('_s')}_share" if name.endswith("_s") else f"{name}_per_s"
