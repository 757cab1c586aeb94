"""One run: a victim's fixed work with one neighbour, and the times of every step."""

import time
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forerun.data.collectors.interference.neighbours import ISOLATED, Neighbour
from forerun.data.collectors.interference.plan import PlannedRun
from forerun.data.collectors.interference.sampler import Sampler
from forerun.data.collectors.interference.victims import READY_S, started, victim
from forerun.data.collectors.runner.worker import Worker, WorkerFailed
from forerun.data.collectors.system.host_inventory import ROOT
from forerun.data.collectors.system.procfs import CPU_TIMES, stat

AMBIENT_S = 0.2
LONGEST_S = 120.0
IDLE = ("idle", "iowait")


@dataclass(frozen=True)
class Places:
    """CPUs that victims and neighbours are pinned to, and the folder that they write to.

    Attributes:
        victim: CPU of the victims and of neighbours on the same one.
        other: CPU of the other neighbours, the probe and the collector itself.
        scratch: folder for files of victims and neighbours.
    """

    victim: int
    other: int
    scratch: Path

    def of(self, placement: str) -> int:
        """The CPU of a neighbour with that placement."""
        return self.victim if placement == "same" else self.other


def busy_s(root: Path = ROOT) -> tuple[float, float]:
    """CPU seconds of all CPUs so far: those not idle, and all; stolen ones are not idle."""
    counted = stat((root / "proc/stat").read_text(encoding="utf-8")).cumulative
    each = {kind: counted.get(f"cpu.{kind}_s", 0.0) for kind in CPU_TIMES}
    total = sum(each.values())
    return total - sum(each[kind] for kind in IDLE), total


def ambient_share(seconds: float = AMBIENT_S) -> float:
    """Share of all CPUs in use while of this collection only sampler and probe run."""
    busy, total = busy_s()
    time.sleep(seconds)
    busy_after, total_after = busy_s()
    return (busy_after - busy) / max(total_after - total, 1e-9)


def perform(
    planned: PlannedRun, units: int, places: Places, sampler: Sampler, *, settle_s: float, seed: int
) -> dict[str, Any]:
    """Carry out a planned run and return its row; the status says whether it failed.

    Args:
        planned: victim and state.
        units: work of the victim.
        places: CPUs and folder.
        sampler: reads the victim's own times during the run.
        settle_s: seconds that the neighbour runs, at least, before the work begins.
        seed: seed of a dynamic neighbour's phases.
    """
    who, state = victim(planned.victim), planned.state
    row: dict[str, Any] = {
        "key": planned.key,
        "repeat": planned.repeat,
        "victim": who.name,
        "family": who.family,
        "neighbour": state.neighbour,
        "intensity": state.intensity,
        "placement": state.placement,
        "mode": state.mode,
        "units": units,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ambient_share": round(ambient_share(), 4),
        "spawned": time.monotonic(),
    }
    seed = zlib.crc32(f"{seed}/{planned.key}".encode())
    neighbour = Neighbour(state, places.of(state.placement), places.scratch, seed)
    try:
        with started(who, units, places.victim, places.scratch) as worker, neighbour:
            _work(worker, neighbour, row, sampler, settle_s)
    except WorkerFailed as error:
        row["status"] = f"failed: {error}"
    finally:
        sampler.watch(None)
    row["stopped"] = time.monotonic()
    return row


def _work(
    worker: Worker, neighbour: Neighbour, row: dict[str, Any], sampler: Sampler, settle_s: float
) -> None:
    sampler.watch(worker.process)
    begun = time.monotonic()
    worker.wait_ready(READY_S)
    time.sleep(max(0.0, begun + settle_s - time.monotonic()))
    used, (busy, total) = neighbour.cpu_s(), busy_s()
    worker.go()
    row |= worker.result(LONGEST_S)
    used_after, (busy_after, total_after) = neighbour.cpu_s(), busy_s()
    victim_s = row["user_s"] + row["system_s"]
    row["neighbour_cpu_s"] = round(used_after - used, 3)
    row["on_share"] = round(neighbour.on_share(row["start"], row["end"]), 4)
    # What others used while the work ran; ticks of 10 ms can make it slightly negative.
    others = (busy_after - busy) - victim_s - (used_after - used)
    row["others_share"] = round(max(0.0, others) / max(total_after - total, 1e-9), 4)
    works = neighbour.state == ISOLATED or (neighbour.is_alive() and row["neighbour_cpu_s"] > 0)
    row["status"] = "ok" if works or row["on_share"] < 0.01 else "neighbour: it did not run"
