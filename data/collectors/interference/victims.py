"""Victims: eighteen programs of fixed work in five families, whose run time is measured.

Programs in C, those of victims, neighbours and the cache probe, are compiled when first needed.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.data.bundle import home
from forerun.data.collectors.runner.worker import Worker, finished
from forerun.data.errors import MissingData, MissingTool
from forerun.data.facts import facts_of
from forerun.data.file_store import draft_of

FLAGS = ("-O2", "-pthread")
SOURCES = Path(__file__).parent


def compiler() -> str | None:
    """Path of the C compiler: CC, else cc, gcc or clang; None where there is none."""
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


def program(name: str) -> Path:
    """The compiled NAME.c, in the user's folder; compiled when source or compiler are new.

    Raises:
        MissingTool: there is no C compiler, or it refuses the source.
    """
    source = SOURCES / f"{name}.c"
    cc = compiler()
    if cc is None:
        raise MissingTool(f"No C compiler (cc, gcc or clang) to build {source.name}; install one.")
    key = hashlib.sha256(source.read_bytes() + " ".join((cc, *FLAGS)).encode()).hexdigest()[:16]
    built = home() / "native" / f"{name}-{key}"
    if built.is_file():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(built) as draft:
        command = [cc, *FLAGS, "-o", str(draft), str(source)]
        done = finished(command)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise MissingTool(f"{cc} cannot build {source.name}: {why}")
    return built


READY_S = 30.0
LONGEST_S = 120.0
SHORT_S = 0.3


@dataclass(frozen=True)
class Victim:
    """One program.

    Attributes:
        name: its name, which is also the program's argument.
        family: one of FAMILIES; whole families are held out in evaluations.
        native: whether it is a program of `victims.c`; else it is a network run by onnxruntime.
        working_set_mib: memory that it goes through again and again.
    """

    name: str
    family: str
    native: bool
    working_set_mib: float


_TABLE: Final[Mapping[str, Mapping[str, float]]] = facts_of(__file__)
FAMILIES: Final = tuple(_TABLE)
VICTIMS: tuple[Victim, ...] = tuple(
    Victim(name, family, family != "inference", mib)
    for family, own in _TABLE.items()
    for name, mib in own.items()
)


def victim(name: str) -> Victim:
    """The victim of that name.

    Raises:
        MissingData: there is none.
    """
    for each in VICTIMS:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in VICTIMS)
    raise MissingData(f"No victim named {name!r}; there are {known}.")


def command(who: Victim, units: int, cpu: int, scratch: Path) -> list[str]:
    """The command that runs a victim.

    Args:
        who: the victim.
        units: amount of work; 0 is without end.
        cpu: CPU that it is pinned to; -1 for none.
        scratch: folder for files that it writes.

    Raises:
        MissingTool: it cannot be compiled here.
    """
    if who.native:
        return [str(program("victims")), str(cpu), who.name, str(units), str(scratch)]
    module = "forerun.data.collectors.interference.victim_networks"
    launch = [str(program("neighbours")), str(cpu), "launch"]
    return [*launch, sys.executable, "-m", module, who.name, str(units), str(scratch)]


def started(who: Victim, units: int, cpu: int, scratch: Path) -> Worker:
    """Start a victim, which then prepares its work; arguments as for `command`."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    # The victim imports the same packages as this process.
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    env = {**os.environ, **single, **path}
    return Worker(command(who, units, cpu, scratch), env=env)


def measured(who: Victim, units: int, cpu: int, scratch: Path) -> float:
    """Seconds that an amount of work takes, without time waited for a CPU."""
    with started(who, units, cpu, scratch) as worker:
        worker.wait_ready(READY_S)
        worker.go()
        row = worker.result(LONGEST_S)
    return time_of_work(row)


def time_of_work(row: Mapping[str, float]) -> float:
    """Seconds of the work in a result, less the time it waited for a CPU.

    At least its CPU time: threads that wait for each other on one CPU count that wait as well.
    """
    wall, used = row["end"] - row["start"], row["user_s"] + row["system_s"]
    return max(wall - row.get("run_delay_s", 0.0), used)


def calibrate(target_s: float, time_of: Callable[[int], float]) -> int:
    """Units of work that take about `target_s` seconds.

    The shorter of two timings counts, since disturbances only make work longer.

    Args:
        target_s: seconds wanted.
        time_of: units -> seconds.
    """
    units, taken = 8, time_of(8)
    while taken < SHORT_S:
        units *= max(2, min(64, round(1.2 * SHORT_S / max(taken, 1e-6))))
        taken = time_of(units)
    taken = min(taken, time_of(units))
    return max(1, round(units * target_s / taken))
