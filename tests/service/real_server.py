"""A real `forerun serve` in processes of its own: the one way in which tests start a server."""

import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

import httpx

from tests.waiting import eventually

IMPORTED = (
    "forerun.service.answers.answer",
    "forerun.service.answers.circuits",
    "forerun.service.adaptation.predictor_in_use",
    "gunicorn.app.base",
    "httpx",
    "uvicorn",
)
"""What a server imports, but for what reads the environment when it is imported."""
multiprocessing.get_context("forkserver").set_forkserver_preload([*IMPORTED])
STOPS_WITHIN_S = 60
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class RealServer:
    """A running server, which leads a process group of its own.

    Attributes:
        url: base address, without a slash at the end.
        log: file with all that it has printed, errors too.
    """

    url: str
    log: Path
    process: BaseProcess

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """Process id of the main process."""
        assert self.process.pid is not None
        return self.process.pid

    def pids(self) -> list[int]:
        """Process ids of the main process and its workers, the main process first."""
        running = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        group = [pid for pid in running if _group(pid) == self.pid]
        return sorted(group, key=lambda pid: (pid != self.pid, pid))

    def workers(self) -> set[int]:
        """Process ids of the workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return set(map(int, children.split()))

    def memory_mib(self) -> float:
        """Resident memory of all processes, MiB; a shared page counts once for each sharer."""
        return sum(map(_resident_mib, self.pids()))

    @property
    def runs(self) -> bool:
        """Whether the main process has not ended."""
        return self.process.is_alive()

    def wait(self) -> int:
        """Wait until the main process has ended.

        Returns:
            The exit code, negative for a signal.
        """
        self.process.join(STOPS_WITHIN_S)
        assert self.process.exitcode is not None, f"it did not end within {STOPS_WITHIN_S} s"
        return self.process.exitcode

    def stop(self) -> int:
        """Ask it to end, as a supervisor does (SIGTERM), and wait for its exit code."""
        self.process.terminate()
        return self.wait()

    def kill(self) -> None:
        """End all of its processes at once (SIGKILL), as a crash does; safe to repeat."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self.wait()


@contextmanager
def real_server(
    home: Path,
    *,
    workers: int = 1,
    environment: Mapping[str, str] = NOTHING,
    until: str | None = "/readyz",
    fresh: bool = False,
    prepare: Callable[[], object] | None = None,
) -> Iterator[RealServer]:
    """Start `forerun serve` on a free port; it is stopped at the end.

    Args:
        home: FORERUN_HOME of the server.
        workers: number of worker processes.
        environment: further variables, such as FORERUN_PREDICTOR_FOLDER. Variables of this process
            whose names begin with FORERUN_ are not passed on.
        until: path that must answer 200, with all workers running, before the server is handed
            over; None for a server that has only printed its address.
        fresh: whether it imports everything itself. Else it is forked from a process that has
            imported `IMPORTED`, with which it shares memory.
        prepare: what the server calls before it starts, a function of a module.

    Raises:
        RuntimeError: it ended before it answered; the message holds all that it printed.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FORERUN_")}
    clean |= {"FORERUN_HOME": str(home), "PYTHONUNBUFFERED": "1", **environment}
    start = multiprocessing.get_context("spawn" if fresh else "forkserver")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        process = start.Process(target=_serve, args=(log, clean, workers, prepare))
        process.start()
        try:
            server = RealServer(_address(process, log), log, process)
            if until is not None:
                eventually(lambda: _answers(server, until), every_s=0.1)
                eventually(lambda: workers == 1 or len(server.workers()) == workers, every_s=0.1)
            yield server
            if server.runs:
                server.stop()
        finally:
            RealServer("", log, process).kill()


def _serve(
    log: Path, environment: Mapping[str, str], workers: int, prepare: Callable[[], object] | None
) -> None:
    """`forerun serve` in this process, which prints to a log."""
    os.setsid()
    with log.open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout.reconfigure(write_through=True)
    sys.argv = ["forerun", "serve", "--port", "0", "--workers", str(workers)]
    if prepare is not None:
        prepare()
    from forerun.service.cli import main

    main()


def _address(process: BaseProcess, log: Path) -> str:
    """The address that the server prints once its predictors are loaded."""

    def printed() -> re.Match[str] | None:
        _check(process, log)
        return re.search(r"http://\S+:\d+(?=\s)", log.read_text())

    eventually(printed, every_s=0.05)
    found = printed()
    assert found is not None
    return found[0]


def _answers(server: RealServer, path: str) -> bool:
    _check(server.process, server.log)
    try:
        return httpx.get(server.url + path, timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def _check(process: BaseProcess, log: Path) -> None:
    if not process.is_alive():
        raise RuntimeError(f"the server ended with {process.exitcode}:\n{log.read_text()}")


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _resident_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
