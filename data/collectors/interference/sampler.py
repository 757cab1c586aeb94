"""Readings of the machine on a fixed clock, independent of the runs."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from forerun.data.collectors.runner.line_journal import LineJournal
from forerun.data.collectors.system.counters import Readable
from forerun.data.collectors.system.host_inventory import ROOT, read_all, read_task


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
