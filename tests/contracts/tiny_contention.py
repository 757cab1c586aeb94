"""A made-up journal of a contention collection, as the collector writes it, and its tables."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from forerun.data.collectors.interference.cache_probe import COLUMNS
from forerun.data.collectors.interference.tables import build
from forerun.data.collectors.interference.victims import VICTIMS
from forerun.data.collectors.runner.journal import LineJournal
from tests.contracts.tiny_published import packaged_files

ALONE_S = {each.name: 2.0 + 0.01 * i for i, each in enumerate(VICTIMS)}
STATES = (
    ("none", "none", "none", "static", 1.0),
    ("cache", "high", "other", "static", 2.0),
    ("cpu", "high", "same", "static", 2.0),
    ("victim:triad", "high", "other", "static", 1.25),
    ("cache", "high", "other", "dynamic", 1.5),
)
"""Neighbour, intensity, placement, mode, and how many times longer work takes."""

ZERO = 1000.0
FAULTS = 500.0
"""Page faults of every run, however long it takes."""

PEOPLE = ("alu", "chase4", "triad", "read_zero", "convnet")


def write_journal(folder: Path, *, repeats: int = 2, victims: tuple[str, ...] = PEOPLE) -> None:
    """A session of exact times: what takes longer takes as much longer as its state says."""
    session = folder / "000"
    family = {each.name: each.family for each in VICTIMS}
    clock, spans = ZERO + 5.0, []
    for repeat in range(repeats):
        for neighbour, intensity, placement, mode, longer in STATES:
            for name in victims:
                wall = ALONE_S[name] * longer
                start, end = clock + 0.6, clock + 0.6 + wall
                row = {"key": f"{repeat}/{name}/{neighbour}-{placement}-{mode}", "repeat": repeat}
                row |= {"victim": name, "family": family[name], "neighbour": neighbour}
                row |= {"intensity": intensity, "placement": placement, "mode": mode}
                row |= {"units": 100, "started_at": "2026-01-01T00:00:00+00:00", "status": "ok"}
                row |= {"spawned": clock, "start": start, "end": end, "stopped": end + 0.1}
                row |= {"user_s": wall * 0.9, "system_s": wall * 0.05, "run_delay_s": wall * 0.05}
                row |= {"ambient_share": 0.01, "others_share": 0.02, "neighbour_cpu_s": wall}
                row |= {"on_share": 0.0 if neighbour == "none" else 1.0, "order": len(spans)}
                row |= {"voluntary_switches": 1, "involuntary_switches": 2, "minor_faults": 500}
                LineJournal(session / "runs.jsonl").append(row | {"session": "000"})
                spans.append((start, end, longer))
                clock = end + 0.3
    _write_readings(session, spans, clock)
    sources = {"stat": {"available": True}, "resctrl": {"available": False, "reason": "no /sys"}}
    curves = {"none": [{"mib": 2.0, "ns": 12.0}, {"mib": 64.0, "ns": 140.0}]}
    row = {"session": "000", "machine": {"cpu_model": "Made Up"}, "sources": sources}
    LineJournal(session / "session.jsonl").append(row | {"llc": curves, "stress_ng": None})


@cache
def contention() -> dict[str, bytes]:
    """Tables of that journal as Parquet, by file name."""
    with tempfile.TemporaryDirectory() as folder:
        write_journal(Path(folder))
        tables = build(Path(folder), 1.0)
    return packaged_files(**{name: tables[name] for name in ("runs", "samples", "probe")})


def _write_readings(session: Path, spans: list[tuple[float, float, float]], over: float) -> None:
    starts, ends, longer = (np.array(column) for column in zip(*spans, strict=True))

    def done(t: float) -> np.ndarray:
        return np.clip((t - starts) / (ends - starts), 0.0, 1.0)

    for t in np.arange(ZERO, over + 5.0):
        now = (starts <= t) & (t <= ends)
        stalled = float((done(t) * (ends - starts) * (1 - 1 / longer)).sum())
        cumulative = {"cpu.user_s": 5.0 + t - ZERO, "pressure.cpu.some_s": stalled}
        cumulative |= {"vmstat.pgfault": FAULTS * float(done(t).sum()), "stat.ctxt": 7.0 * t}
        task = int(np.flatnonzero(now)[0]) if now.any() else None
        if task is not None:
            cumulative["task.cpu_s"] = float(t - starts[task]) / float(longer[task])
        gauges = {"stat.procs_running": 1.0 + float(now.any()), "memory.MemFree_mib": 100.0}
        row = {"t": float(t), "task": task, "cumulative": cumulative, "gauges": gauges}
        LineJournal(session / "samples.jsonl").append(row)
    lines = [",".join(COLUMNS)]
    for t in np.arange(ZERO, over + 5.0, 0.1):
        now = (starts <= t) & (t <= ends)
        slow = float(longer[now][0]) if now.any() else 1.0
        lines.append(f"{t:.3f},0.1,{20 * slow:.3f},{30 * slow:.3f},{1 - 1 / slow:.3f},38,0.5,69")
    (session / "probe.csv").write_text("\n".join(lines) + "\n")
