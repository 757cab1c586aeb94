"""A collection: co-located victims, one run after another, while a sampler reads the machine.

Everything is journaled as it happens under `journal/`, one folder per session, so that a killed
collection stays readable and resumes with the next call. Tables are made from the journal alone.
A program of the user's own is run as victims are, alone and with one neighbour in turn; a window of
some seconds without a victim is journaled like a run.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from forerun.data.collectors.interference import cache_probe
from forerun.data.collectors.interference.cache_probe import CacheProbe
from forerun.data.collectors.interference.neighbours import (
    ISOLATED,
    ONE_LOAD,
    Neighbour,
    State,
    stress_ng_version,
)
from forerun.data.collectors.interference.plan import (
    ContentionPlan,
    PlannedRun,
    possible,
    referenced,
)
from forerun.data.collectors.interference.run import Places, Sampler, perform
from forerun.data.collectors.interference.tables import NEAREST, write_tables
from forerun.data.collectors.interference.victims import calibrate, measured, program, victim
from forerun.data.collectors.runner.journal import LineJournal
from forerun.data.collectors.system.host_inventory import (
    all_sources,
    availability,
    facts,
    hardware_counters,
    usable_cpus,
)
from forerun.data.errors import FailedProgram, MissingTool
from forerun.data.lazy import pd

PROBED = "chase4"
"""Victim that measures what the probe itself evicts: it works in the cache that is probed."""

PAIRS = 4
"""Number of timings with the probe, and of those without, in turn."""

ROUNDS = 3
"""Rounds in which each victim's work is sized."""


@dataclass
class Collection:
    """A plan and the folder in which it is carried out, over one session or several.

    Attributes:
        plan: runs to carry out.
        folder: journal and tables.
        cpus: CPUs that may be used.
    """

    plan: ContentionPlan
    folder: Path
    cpus: tuple[int, ...] = field(default_factory=lambda: tuple(usable_cpus()))

    @classmethod
    def open(cls, plan: Path, folder: Path) -> "Collection":
        """The collection of a plan file in a folder, new or resumed.

        Raises:
            MissingData, BadTable: the plan cannot be read.
            MissingTool: victims cannot be compiled here.
        """
        for name in ("victims", "neighbours"):
            program(name)
        return cls(ContentionPlan.read(plan), folder)

    @property
    def work(self) -> LineJournal:
        """Journal of how many units of work each victim does; the same in every session."""
        return LineJournal(self.folder / "journal" / "work.jsonl")

    def limits(self) -> list[str]:
        """One line for each part of the plan that this machine cannot run."""
        lines = []
        if len(self.cpus) < 2:
            lines.append("one CPU only: no neighbour on another one")
        if stress_ng_version() is None:
            lines.append("no stress-ng: loads of our own stand in for it")
        try:
            program("cache_probe")
        except MissingTool as error:
            lines.append(f"no cache probe: {error}")
        return lines

    def todo(self) -> list[PlannedRun]:
        """Planned runs that no session has done, in order.

        A session that resumes a plan gets isolated runs of its own to compare with.
        """
        done = {row["key"] for path in self._journals() for row in LineJournal(path).rows()}
        left = [run for run in possible(self.plan.runs(), self.cpus) if run.key not in done]
        if not done or not self.plan.isolated:
            return left
        first = self.plan.repeats * self.plan.isolated + NEAREST * len(self._journals())
        return referenced(left, NEAREST, first)

    def run(self, *, budget_minutes: float | None = None) -> Iterator[dict[str, Any]]:
        """Start or resume the plan in a new session.

        Args:
            budget_minutes: no run starts after that time; no limit when None.

        Yields:
            The row of each run as it is journaled.
        """
        deadline = None if budget_minutes is None else time.monotonic() + 60 * budget_minutes
        todo = self.todo()
        if not todo or budget_minutes == 0:
            return
        session = self._new_session()
        places = Places(self.cpus[-1], self.cpus[0], self.folder / "scratch")
        places.scratch.mkdir(exist_ok=True)
        try:
            with pinned(places.other):
                units = self._units(places)
                self._describe(session, places, units)
                with watched(session, places.other, self.cpus, self.plan) as sampler:
                    for order, planned in enumerate(todo):
                        if deadline is not None and time.monotonic() > deadline:
                            return
                        row = perform(planned, units[planned.victim], places, sampler, self.plan)
                        row |= {"session": session.name, "order": order}
                        LineJournal(session / "runs.jsonl").append(row)
                        yield row
        finally:
            shutil.rmtree(places.scratch, ignore_errors=True)

    def write_tables(self) -> dict[str, "pd.DataFrame"]:
        """Tables of all that is journaled, also written into the folder."""
        return write_tables(self.folder, self.plan.clock_s)

    def _units(self, places: Places) -> dict[str, int]:
        """Work of each victim, sized once for the whole collection.

        In several rounds over all victims, of which the fastest counts: other guests may occupy the
        cache for as long as one sizing takes, and work that no longer fits then runs at a fifth of
        its speed.
        """
        known = {row["victim"]: int(row["units"]) for row in self.work.rows()}
        sized = {name: 1 for name in self.plan.victims if name not in known}
        for _ in range(ROUNDS):
            for name in sized:
                time_of = partial(measured, victim(name), cpu=places.victim, scratch=places.scratch)
                sized[name] = max(sized[name], calibrate(self.plan.target_s, time_of))
        for name, units in sized.items():
            self.work.append({"victim": name, "units": units})
        return known | sized

    def _describe(self, session: Path, places: Places, units: dict[str, int]) -> None:
        """Journal machine, sources, cache curves alone and with loads, and the probe's cost."""
        with hardware_counters(self.cpus) as counters:
            sources = availability([*all_sources(), counters])
        curves: dict[str, list[dict[str, float]]] = {}
        slowdown: float | None = None
        try:
            if self.plan.probe_ms > 0:
                curves = self._cache_curves(places)
                slowdown = self._probe_slowdown(places, units)
            fields = len(cache_probe.COLUMNS) if curves else 0
            why = {} if curves else {"reason": "the plan wants none"}
            sources["cache_probe"] = {"available": bool(curves), "fields": fields, **why}
        except MissingTool as error:
            sources["cache_probe"] = {"available": False, "reason": str(error)}
        row = {
            "session": session.name,
            "plan": asdict(self.plan),
            "machine": facts(len(self.cpus)),
            "sources": sources,
            "llc": curves,
            "probe_slowdown": slowdown,
            "stress_ng": stress_ng_version(),
            "utc_s": time.time(),
        }
        LineJournal(session / "session.jsonl").append(row)

    def _cache_curves(self, places: Places) -> dict[str, list[dict[str, float]]]:
        """Latency by working set, alone and, where there is a second CPU, with loads on it."""
        states = {"none": ISOLATED}
        if len(self.cpus) > 1:
            states |= {name: State(name, "high", "other") for name in ("cache", "stream")}
        curves = {}
        for name, state in states.items():
            with Neighbour(state, places.other, places.scratch):
                time.sleep(self.plan.settle_s)
                curves[name] = cache_probe.sweep(places.victim)
        return curves

    def _probe_slowdown(self, places: Places, units: dict[str, int]) -> float | None:
        """How many times longer PROBED takes with the cache probe, which accompanies all runs.

        The ratio of medians of PAIRS alternating timings; None where the plan lacks that victim.
        """
        if PROBED not in units:
            return None
        taken: dict[bool, list[float]] = {False: [], True: []}
        for probed in (False, True) * PAIRS:
            probe = CacheProbe(places.scratch / "probe.csv", places.other, self.plan.probe_ms)
            try:
                if probed:
                    probe.start()
                work = measured(victim(PROBED), units[PROBED], places.victim, places.scratch)
            finally:
                probe.stop()
            taken[probed].append(work)
        return median(taken[True]) / median(taken[False])

    def _journals(self) -> list[Path]:
        return sorted(self.folder.glob("journal/*/runs.jsonl"))

    def _new_session(self) -> Path:
        there = [int(p.name) for p in self.folder.glob("journal/*") if p.name.isdigit()]
        session = self.folder / "journal" / f"{max(there, default=-1) + 1:03d}"
        session.mkdir(parents=True)
        return session


@contextmanager
def watched(
    session: Path, cpu: int, cpus: Sequence[int], plan: ContentionPlan
) -> Iterator[Sampler]:
    """Sampler and probe, from `plan.margin_s` before the block until `plan.margin_s` after it.

    Args:
        session: folder that they journal into.
        cpu: CPU that the probe is pinned to.
        cpus: CPUs whose hardware counters are read.
        plan: clock, probe and margin.
    """
    journal = LineJournal(session / "samples.jsonl")
    probe = CacheProbe(session / "probe.csv", cpu, plan.probe_ms)
    with ExitStack() as stack:
        listed = [stack.enter_context(hardware_counters(cpus)), *all_sources()]
        sampler = Sampler(journal, listed, interval_s=plan.clock_s)
        stack.callback(sampler.stop)
        stack.callback(probe.stop)
        sampler.start()
        with suppress(MissingTool):
            if plan.probe_ms > 0:
                probe.start()
        time.sleep(plan.margin_s)
        yield sampler
        time.sleep(plan.margin_s)


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Pin this thread, and those that it starts, to one CPU; afterwards restore its affinity."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


SETTINGS: Final = ContentionPlan((), (), margin_s=3.0)
MOST_SAID = 300


@dataclass(frozen=True)
class OwnProgram:
    """A command that does the same work each time.

    Attributes:
        name: name in the rows.
        command: program and arguments.
        repeats: number of runs alone, and of runs with the neighbour.
    """

    name: str
    command: tuple[str, ...]
    repeats: int = 5

    def states(self, cpus: Sequence[int]) -> list[State]:
        """The neighbour of each run, in order; without a second CPU all runs are alone."""
        pair = [ISOLATED, ONE_LOAD] if len(cpus) > 1 else [ISOLATED]
        return [state for _ in range(self.repeats) for state in pair]

    def run(self, folder: Path, cpus: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
        """Run it, pinned to the last CPU, and journal a session.

        Args:
            folder: folder of the collection.
            cpus: CPUs that may be used; all that this process may use when None.

        Yields:
            The row of each run.

        Raises:
            MissingTool: there is no such program, or no C compiler.
            FailedProgram: it ended with an error.
        """
        if shutil.which(self.command[0]) is None:
            raise MissingTool(f"No program {self.command[0]!r} to run; is it on the PATH?")
        usable = usable_cpus() if cpus is None else list(cpus)
        session = folder / "journal" / "000"
        session.mkdir(parents=True)
        with pinned(usable[0]), watched(session, usable[0], usable, SETTINGS) as sampler:
            for order, state in enumerate(self.states(usable)):
                begun = datetime.now(UTC).isoformat(timespec="seconds")
                row: dict[str, Any] = {"spawned": time.monotonic(), "started_at": begun}
                with Neighbour(state, usable[0], folder) as neighbour:
                    time.sleep(SETTINGS.settle_s)
                    row |= self._timed(usable[-1], folder, sampler)
                    works = state == ISOLATED or (neighbour.is_alive() and neighbour.cpu_s() > 0)
                row |= {"stopped": time.monotonic(), "units": 1, "family": "own"}
                row["status"] = "ok" if works else "neighbour: it did not run"
                row |= {"victim": self.name, **asdict(state), "order": order}
                row |= {"session": session.name, "repeat": order}
                LineJournal(session / "runs.jsonl").append(row)
                yield row

    def _timed(self, cpu: int, folder: Path, sampler: Sampler) -> dict[str, float]:
        """One run: when it began and ended, and CPU seconds of it and of all that it waited for."""
        launch = [str(program("neighbours")), str(cpu), "launch", *self.command]
        error_log = folder / "said.txt"
        nothing = subprocess.DEVNULL
        with error_log.open("wb") as errors:
            start = time.monotonic()
            process = subprocess.Popen(  # noqa: S603
                launch, stdin=nothing, stdout=nothing, stderr=errors, process_group=0
            )
            sampler.watch(process.pid)
            try:
                _, status, used = os.wait4(process.pid, 0)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            finally:
                sampler.watch(None)
            end = time.monotonic()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        if code:
            lines = error_log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = f": {lines[-1][:MOST_SAID]}" if lines else ""
            raise FailedProgram(f"{self.name} ended with code {code}{why}")
        return {"start": start, "end": end, "user_s": used.ru_utime, "system_s": used.ru_stime}


def watch(folder: Path, seconds: float, process: int | None = None) -> None:
    """Journal a session of one run without a victim.

    Args:
        folder: folder of the collection.
        seconds: length of the window.
        process: process whose share of a CPU is also read; none when None.
    """
    usable = usable_cpus()
    session = folder / "journal" / "000"
    session.mkdir(parents=True)
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    with pinned(usable[0]), watched(session, usable[0], usable, SETTINGS) as sampler:
        sampler.watch(process)
        start = time.monotonic()
        # One tick more than requested, since the first and the last interval are incomplete.
        time.sleep(seconds + SETTINGS.clock_s)
        end = time.monotonic()
        sampler.watch(None)
    row = {"victim": "", "family": "", "neighbour": "", "repeat": 0, "order": 0, "status": "ok"}
    row |= {"intensity": "", "placement": "", "mode": "", "started_at": begun}
    row |= {"spawned": start, "start": start, "end": end, "stopped": end, "session": session.name}
    LineJournal(session / "runs.jsonl").append(row)
