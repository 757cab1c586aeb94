"""Neighbours of a victim: stress-ng, loads of this package where it is missing, other victims."""

import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Self

from forerun.data.collectors.interference.victims import READY_S, program, started, victim
from forerun.data.collectors.runner.worker import Worker, finished, group_cpu_s
from forerun.data.errors import BadTable

NONE = "none"
PAIR = "victim:"
PLACEMENTS = ("other", "same")
MODES = ("static", "dynamic")

STRESSORS: dict[str, tuple[str, ...]] = {
    "cpu": ("--cpu", "1"),
    "cache": ("--cache", "1", "--cache-no-affinity"),
    "stream": ("--stream", "1"),
    "memrate": ("--memrate", "1", "--memrate-bytes", "256M"),
    "vm": ("--vm", "1", "--vm-bytes", "128M"),
    "hdd": ("--hdd", "1", "--hdd-bytes", "64M"),
    "switch": ("--switch", "1"),
}
"""Stressor -> arguments of stress-ng; `neighbours.c` has a load of each name."""

DUTY = {"low": 0.3, "medium": 0.6, "high": 1.0}
"""Intensity -> share of each period of PERIOD_S in which a neighbour runs."""

PERIOD_S = 0.1
PHASES_S = (1.0, 3.0)
"""Least and greatest length of the phases of a dynamic neighbour, which are on and off in turn."""


@dataclass(frozen=True)
class State:
    """What a victim is co-located with.

    Attributes:
        neighbour: `none`, a stressor, or `victim:NAME`.
        intensity: a key of DUTY; `none` without a neighbour.
        placement: `other` or `same` CPU as the victim's; `none` without a neighbour.
        mode: `static`, or `dynamic`: on and off for 1 to 3 s in turn.
    """

    neighbour: str = NONE
    intensity: str = NONE
    placement: str = NONE
    mode: str = "static"

    @property
    def name(self) -> str:
        """Short name, such as `cache-high-other-static`."""
        if self.neighbour == NONE:
            return NONE
        return f"{self.neighbour}-{self.intensity}-{self.placement}-{self.mode}"

    def check(self) -> None:
        """Check that there is such a neighbour.

        Raises:
            BadTable: there is not; the message says which values there are.
            MissingData: it is a victim that does not exist.
        """
        if self == ISOLATED:
            return
        if self.neighbour.startswith(PAIR):
            victim(self.neighbour.removeprefix(PAIR))
        elif self.neighbour not in STRESSORS:
            known = ", ".join(STRESSORS)
            raise BadTable(f"No neighbour {self.neighbour!r}; there are {known}, {PAIR}NAME.")
        for value, known_values in (
            (self.intensity, tuple(DUTY)),
            (self.placement, PLACEMENTS),
            (self.mode, MODES),
        ):
            if value not in known_values:
                raise BadTable(
                    f"{self.neighbour}: {value!r} is not one of {', '.join(known_values)}."
                )


ISOLATED = State()

ONE_LOAD = State("cache", "high", "other")
"""Neighbour with which a program is profiled: it fills the caches from another CPU."""


def stress_ng() -> str | None:
    """Path of stress-ng; None where it is not installed."""
    return shutil.which("stress-ng")


def stress_ng_version() -> str | None:
    """Name and version that stress-ng reports; None where it is not installed."""
    found = stress_ng()
    if found is None:
        return None
    done = finished([found, "--version"])
    return " ".join(done.stdout.split()[:3]) or "stress-ng"


def phases(state: State, seed: int) -> Iterator[tuple[bool, float]]:
    """Endless phases of a neighbour, on and off in turn; the same for the same seed.

    Yields:
        Whether it is on, and for how many seconds.
    """
    if state.mode == "dynamic":
        draw = random.Random(seed)  # noqa: S311
        on = draw.random() < 0.5
        # The first phase had already started when the run began.
        yield on, draw.uniform(0.0, PHASES_S[1])
        while True:
            on = not on
            yield on, draw.uniform(*PHASES_S)
    duty = DUTY[state.intensity]
    if duty >= 1.0:
        yield from repeat((True, PHASES_S[1]))
    while True:
        yield True, PERIOD_S * duty
        yield False, PERIOD_S * (1.0 - duty)


@dataclass
class Neighbour:
    """A neighbour that runs inside a `with` block and is always ended with it.

    Attributes:
        state: what it is.
        cpu: CPU it is pinned to; -1 for none.
        scratch: folder for its files.
        seed: seed of its phases.
        switches: monotonic time and whether it was on from then on.
    """

    state: State
    cpu: int
    scratch: Path
    seed: int = 0
    switches: list[tuple[float, bool]] = field(default_factory=list)
    _worker: Worker | None = None
    _thread: threading.Thread | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        if self.state == ISOLATED:
            return self
        self._worker = self._launch()
        if self.state.neighbour.startswith(PAIR):
            self._wait_ready(self._worker)
        self.switches.append((time.monotonic(), True))
        if self.state.mode == "dynamic" or DUTY[self.state.intensity] < 1.0:
            self._thread = threading.Thread(target=self._switch, name="neighbour", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        try:
            if self._thread is not None:
                self._thread.join()
        finally:
            if self._worker is not None:
                self._worker.kill()

    def is_alive(self) -> bool:
        """Whether it still runs; True where none was wanted."""
        return self._worker is None or self._worker.is_alive()

    def cpu_s(self) -> float:
        """CPU seconds it has used so far."""
        return 0.0 if self._worker is None else group_cpu_s(self._worker.process)

    def on_share(self, start: float, end: float) -> float:
        """Share of the time between two monotonic times in which it was on."""
        total = 0.0
        ends = [t for t, _ in self.switches[1:]] + [end]
        for (begun, on), over in zip(self.switches, ends, strict=False):
            total += max(0.0, min(over, end) - max(begun, start)) if on else 0.0
        return total / (end - start) if end > start else 0.0

    def _wait_ready(self, worker: Worker) -> None:
        """Wait until a network is loaded, which takes longer than starting other neighbours."""
        try:
            worker.wait_ready(READY_S)
        except BaseException:
            worker.kill()
            raise

    def _launch(self) -> Worker:
        name = self.state.neighbour
        if name.startswith(PAIR):
            who = victim(name.removeprefix(PAIR))
            return started(who, 0, self.cpu, self.scratch)
        own = [str(program("neighbours")), str(self.cpu)]
        tool = stress_ng()
        if tool is None:
            return Worker([*own, "load", name, str(self.scratch)], talks=False)
        options = ("--quiet", "--oomable", "--temp-path", str(self.scratch))
        return Worker([*own, "launch", tool, *STRESSORS[name], *options], talks=False)

    def _switch(self) -> None:
        """Stop and continue the process group on a schedule; errors of sleeps do not accumulate."""
        worker, due = self._worker, time.monotonic()
        if worker is None:
            return
        for on, seconds in phases(self.state, self.seed):
            if self._stopped.is_set():
                return
            worker.signal_group(signal.SIGCONT if on else signal.SIGSTOP)
            self.switches.append((time.monotonic(), on))
            due = max(due + seconds, time.monotonic())
            self._stopped.wait(due - time.monotonic())
