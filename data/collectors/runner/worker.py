"""Child programs of a collector, which are always ended with it."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

GRACE_S = 1.0
READY = b"ready"


class WorkerFailed(Exception):
    """A program ended, or printed no line in time."""


class Worker:
    """A program in a process group of its own; the group is killed when the block is left.

    The group is in this session: Ctrl-C on the terminal reaches only the collector, which then ends
    the programs in order; and the kernel wakes and ends stopped ones if the collector dies.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        talks: bool = True,
        env: dict[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        """
        Args:
            command: program and arguments.
            talks: whether it reads and writes lines; its streams are discarded when False.
            env: environment; this process's when None.
            output: file for what it prints.
        """
        pipe = subprocess.PIPE if talks else subprocess.DEVNULL
        self._pending = b""
        self._process = subprocess.Popen(  # noqa: S603
            list(command),
            stdin=pipe,
            stdout=output or pipe,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env=env,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def process(self) -> int:
        """Process id, which is also that of its group."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the program runs or is stopped, rather than ended."""
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it reports that its work is prepared.

        Raises:
            WorkerFailed: it does not in time, or ends.
        """
        if self._line(timeout_s) != READY:
            raise WorkerFailed("it did not report that it is ready")

    def go(self) -> None:
        """Start its work."""
        stdin = self._process.stdin
        if stdin is None:
            raise WorkerFailed("its standard input is closed")
        with suppress(BrokenPipeError):
            stdin.write(b"go\n")

    def result(self, timeout_s: float) -> dict[str, Any]:
        """The JSON object that it prints at its end.

        Raises:
            WorkerFailed: there is none in time.
        """
        try:
            row = json.loads(self._line(timeout_s))
        except ValueError as error:
            raise WorkerFailed("it printed no JSON object") from error
        if not isinstance(row, dict):
            raise WorkerFailed("it printed no JSON object")
        return row

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all its processes; harmless when they are gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End all its processes: by SIGTERM, then by SIGKILL."""
        self.signal_group(signal.SIGTERM)
        self.signal_group(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        self.signal_group(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _line(self, timeout_s: float) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise WorkerFailed("it printed nothing")
        end = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise WorkerFailed(f"no answer in {timeout_s:.0f} s")
            part = os.read(stdout.fileno(), 65536)
            if not part:
                raise WorkerFailed(f"it ended with code {self._process.wait()}")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return line.strip()


def group_cpu_s(group: int) -> float:
    """CPU seconds of a group's running processes, with those of their ended children."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        words = text.rpartition(")")[2].split()
        if int(words[2]) == group:
            total += sum(map(float, words[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def finished(
    command: Sequence[str], timeout_s: float | None = None, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """A program after it has ended, with what it said and its code.

    Args:
        command: the program and its arguments.
        timeout_s: longest time, seconds.
        options: of `subprocess.run`.

    Raises:
        TimeoutExpired: it took longer, and was ended.
    """
    options = {"capture_output": True, "text": True, "check": False, **options}
    return subprocess.run(command, timeout=timeout_s, **options)  # noqa: S603
