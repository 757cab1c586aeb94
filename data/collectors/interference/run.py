"""One run: a victim's fixed work with one neighbour, while a sampler reads the machine."""

import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forerun.data.collectors.interference.neighbours import ISOLATED, Neighbour
from forerun.data.collectors.interference.plan import ContentionPlan, PlannedRun
from forerun.data.collectors.interference.victims import READY_S, started, victim
from forerun.data.collectors.runner.journal import LineJournal
from forerun.data.collectors.runner.worker import Worker, WorkerFailed
from forerun.data.collectors.system.host import ROOT
from forerun.data.collectors.system.host_inventory import read_all, read_task
from forerun.data.collectors.system.procfs import CPU_TIMES, Readable, stat


class Sampler:
    """A thread that reads all sources every interval and appends each reading to a journal.

    Ticks lie on a grid of the monotonic clock. A late tick is read when it comes, and ticks that
    it overlaps are left out: the gap shows in the times, and nothing is interpolated.

    Each line: `t` (monotonic seconds), `cpu_ms` (CPU time of the reading), `task` (the watched
    process, or null), `cumulative`, `gauges`.
    """

    def __init__(
        self,
        journal: LineJournal,
        listed: Sequence[Readable],
        *,
        interval_s: float = 1.0,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            journal: receives the readings.
            listed: sources to read; those that fail are missing from a reading.
            interval_s: seconds between ticks.
            root: root of the file system, another one in tests.
            clock: monotonic seconds.
        """
        self._journal = journal
        self._listed = tuple(listed)
        self._interval_s = interval_s
        self._root = root
        self._clock = clock
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched: int | None = None

    def watch(self, process: int | None) -> None:
        """Also read that process's own times from the next tick on; none when None."""
        self._watched = process

    def sample(self) -> None:
        """Read all sources now and append the reading."""
        process = self._watched
        begun, now = time.thread_time(), self._clock()
        # First, for its times go by those of the readings: a slow source comes later.
        task: Mapping[str, float] = {} if process is None else read_task(process, self._root)
        reading = read_all(self._listed, self._root)
        row = {
            "t": round(now, 6),
            "cpu_ms": round(1e3 * (time.thread_time() - begun), 3),
            "task": process,
            "cumulative": {**reading.cumulative, **task},
            "gauges": reading.gauges,
        }
        self._journal.append(row)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._tick, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after a last reading; has no effect if it was never started."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self.sample()

    def _tick(self) -> None:
        due = self._clock()
        while not self._stopped.is_set():
            self.sample()
            due += self._interval_s
            now = self._clock()
            if due < now:
                due += self._interval_s * ((now - due) // self._interval_s + 1)
            self._stopped.wait(due - now)


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


def ambient_share() -> float:
    """Share of all CPUs in use while of this collection only sampler and probe run."""
    busy, total = busy_s()
    time.sleep(AMBIENT_S)
    busy_after, total_after = busy_s()
    return (busy_after - busy) / max(total_after - total, 1e-9)


def perform(
    planned: PlannedRun, units: int, places: Places, sampler: Sampler, plan: ContentionPlan
) -> dict[str, Any]:
    """Carry out a planned run and return its row; the status says whether it failed.

    Args:
        planned: victim and state.
        units: work of the victim.
        places: CPUs and folder.
        sampler: reads the victim's own times during the run.
        plan: how long a neighbour runs before the work begins, and the seed of its phases.
    """
    who, state = victim(planned.victim), planned.state
    row: dict[str, Any] = {
        "key": planned.key,
        "repeat": planned.repeat,
        "victim": who.name,
        "family": who.family,
        **asdict(state),
        "units": units,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ambient_share": round(ambient_share(), 4),
        "spawned": time.monotonic(),
    }
    seed = zlib.crc32(f"{plan.seed}/{planned.key}".encode())
    neighbour = Neighbour(state, places.of(state.placement), places.scratch, seed)
    try:
        with started(who, units, places.victim, places.scratch) as worker, neighbour:
            _work(worker, neighbour, row, sampler, plan.settle_s)
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
