"""The last-level cache as seen inside a guest: contention in each tick, and its effective size.

Ticks of 0.5 ms each 100 ms, or 0.5 % of one CPU (the `cpu_ms` column says it of every tick), which
pass through 12 MB: what a neighbour evicts meanwhile makes loads slow. After CacheX
(arXiv 2511.09956).
"""

import csv
import io
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forerun.data.collectors.interference.victims import program
from forerun.data.collectors.runner.worker import Worker, finished

COLUMNS: Final = (
    "t_s", "late_ms", "latency_ns", "near_ns", "evicted", "read_gbs", "cpu_ms", "limit_ns",
)  # fmt: skip
"""Columns of a tick: monotonic seconds; how late it began; ns per dependent load in 8 MB just
passed through (median of 5 short probes); ns per load in 3 MB passed through 1 ms ago (median of
256 lines); share of those lines slower than `limit_ns`; GB/s of reading 1 MB; its CPU time; that
limit, set at start.
"""

SWEEP_S = 60.0


@dataclass
class CacheProbe:
    """A probe that writes one row per tick to a file, from a process of its own, until stopped.

    Attributes:
        path: file of rows, appended to.
        cpu: CPU that it is pinned to; -1 for none.
        tick_ms: interval between ticks, milliseconds.
    """

    path: Path
    cpu: int
    tick_ms: float
    _worker: Worker | None = None

    def start(self) -> None:
        """Start the probe.

        Raises:
            MissingTool: it cannot be compiled here.
        """
        command = [str(program("cache_probe")), str(self.cpu), "watch", str(self.tick_ms)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            self._worker = Worker(command, talks=False, output=file)

    def stop(self) -> None:
        """Stop the probe; has no effect if it was never started."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def ticks(text: str) -> Iterator[Mapping[str, float]]:
    """Rows of a probe's file; incomplete lines and repeated headers are skipped."""
    for words in csv.reader(io.StringIO(text)):
        if len(words) != len(COLUMNS):
            continue
        try:
            yield dict(zip(COLUMNS, map(float, words), strict=True))
        except ValueError:
            continue


def sweep(cpu: int) -> list[dict[str, float]]:
    """Latency by working set: `mib` and `ns` a dependent load; empty where the probe fails.

    Raises:
        MissingTool: it cannot be compiled here.
    """
    command = [str(program("cache_probe")), str(cpu), "sweep"]
    try:
        done = finished(command, SWEEP_S)
    except subprocess.TimeoutExpired:
        return []
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(done.stdout)))
    return [{"mib": float(row["mib"]), "ns": float(row["ns"])} for row in rows]


def effective_mib(curve: list[dict[str, float]]) -> float | None:
    """The largest working set of a sweep that is still nearer to the cache than to memory.

    Halfway, in ratio, between the latency at 2 MiB and that of the largest set; None where the
    sweep is empty.
    """
    inner = [row["ns"] for row in curve if row["mib"] <= 2]
    if not inner or not curve:
        return None
    limit = (inner[-1] * curve[-1]["ns"]) ** 0.5
    held = [row["mib"] for row in curve if row["ns"] <= limit]
    return max(held, default=None)
