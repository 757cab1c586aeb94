"""A program of the user's own, run as victims are: alone and with one neighbour, in turn.

The time of all its processes together and the machine's metrics meanwhile are journaled as those
of a collection's runs are, so that the same tables are made of them.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from forerun.data.collectors.interference.collection import pinned, watched
from forerun.data.collectors.interference.native import program
from forerun.data.collectors.interference.neighbours import ISOLATED, ONE_LOAD, Neighbour, State
from forerun.data.collectors.interference.plan import ContentionPlan
from forerun.data.collectors.interference.sampler import Sampler
from forerun.data.collectors.runner.line_journal import LineJournal
from forerun.data.collectors.system.host_inventory import usable_cpus
from forerun.data.errors import FailedProgram, MissingTool

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
