"""`forerun collect program` and `window`: profiles of programs, and metrics of this host."""

import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import InputError
from forerun.service.cli.output import print_json, progress, progress_bar

if TYPE_CHECKING:
    from forerun.data.workload import ProgramProfile

INTERPRETERS = ("python", "bash", "sh", "perl", "ruby", "node", "java", "Rscript", "julia")
"""Interpreters, whose name does not identify the program; version numbers may follow."""
MOST_OTHERS = 0.15
"""CPUs that other programs may use during profiling without a warning."""
CHILDRENS = 0.5
"""Below this share of the CPU time in the started process, its children do the work."""


def program(
    command: list[str],
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    name: str = "",
    repeats: Annotated[int, typer.Option(min=3)] = 5,
    working_set_mib: Annotated[float | None, typer.Option(min=0)] = None,
) -> None:
    """Profile a program in isolation and next to one load, for `POST /v1/colocation`.

    The program must do the same work in each run, for two seconds or more. It runs on one CPU, as
    the programs of the training set did, and the machine should be idle otherwise. Its output is
    discarded.

    Args:
        command: the program and its arguments, after `--`
        output: JSON file [standard output]
        name: name of the program [its file name]
        repeats: number of isolated runs, and of runs next to the load
        working_set_mib: memory that the program accesses repeatedly, MiB
    """
    from forerun.data.collectors.interference.collection import SETTINGS, OwnProgram
    from forerun.data.collectors.interference.tables import build
    from forerun.data.collectors.system.host_inventory import usable_cpus
    from forerun.features.tables.contention import colocations

    own = OwnProgram(name or called(command), tuple(command), repeats)
    cpus = usable_cpus()
    _check(own.name, output, cpus)
    with TemporaryDirectory(prefix="forerun-") as folder:
        with progress_bar("runs", len(own.states(cpus))) as step:
            for _ in own.run(Path(folder)):
                step()
        tables = build(Path(folder) / "journal", SETTINGS.clock_s)
    runs = tables["runs"]
    profile = colocations(runs, tables["samples"], profiled=True)[0].profile
    if not profile.alone.seconds:
        raise InputError(
            f"{own.name} ends within a second, too soon for a profile; give it more work to do."
        )
    known = described(profile) | {"working_set_mib": working_set_mib}
    alone = runs[runs["neighbour"] == "none"]
    progress(
        f"{own.name} alone: {alone['wall_s'].median():.2f} s, "
        f"{alone['cpu_s'].median():.2f} s of CPU"
    )
    for line in _sensitivity(profile, len(cpus)):
        progress(line)
    _write(known, output)


def _check(name: str, output: Path | None, cpus: Sequence[int]) -> None:
    """Check the arguments before any run, and say what this machine cannot measure.

    Raises:
        InputError: the name is taken, or the folder of the output does not exist.
    """
    from forerun.data.collectors.interference.neighbours import stress_ng_version
    from forerun.data.collectors.interference.victims import VICTIMS

    if name in {each.name for each in VICTIMS}:
        raise InputError(f"{name!r} is a program of ours that was measured; give it a --name.")
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"No folder {output.parent} to write {output.name} into.")
    if len(cpus) < 2:
        progress("there is only one CPU for program and load: its sensitivity stays unknown")
    elif stress_ng_version() is None:
        progress(
            "stress-ng is not installed, so a built-in load replaces it; install it to compare"
        )


def called(command: Sequence[str]) -> str:
    """The default name of a command: its script, else its program."""
    program = Path(command[0]).name
    script = next((Path(word) for word in command[1:] if not word.startswith("-")), None)
    if script is not None and program.rstrip("0123456789.") in INTERPRETERS and script.is_file():
        return script.name
    return program


def _write(known: dict[str, Any], output: Path | None) -> None:
    import json

    if output is None:
        print_json(known)
    else:
        output.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _sensitivity(profile: "ProgramProfile", cpus: int) -> list[str]:
    """Messages about the measured sensitivity, and about other programs on the machine."""
    lines = []
    if profile.p_cpu_beside_cache is not None:
        p_cpu = profile.p_cpu_beside_cache
        lines.append(f"next to a load that fills the caches: P {p_cpu:.2f} (CPU time)")
    elif cpus > 1:
        lines.append("the load did not run: the sensitivity of the program stays unknown")
    others = busy_with_others(profile)
    if others > MOST_OTHERS:
        lines.append(
            f"other programs used {others:.1f} CPUs meanwhile: profile it on an idle machine"
        )
    return lines


def busy_with_others(profile: "ProgramProfile") -> float:
    """CPUs in use by other programs during the isolated runs."""
    values = profile.alone.seconds[0] if profile.alone.seconds else ()
    alone = dict(zip(profile.alone.metrics, values, strict=bool(values)))
    kinds = ("user", "nice", "system", "steal")
    busy = sum(alone.get(f"cpu.{kind}_share", 0.0) for kind in kinds)
    return busy - (profile.cpu_share or 0.0) if alone else 0.0


def described(profile: "ProgramProfile") -> dict[str, Any]:
    """A profile as JSON in the format of `POST /v1/colocation`.

    Metrics of the process itself are left out if its children do the work.
    """
    alone: dict[str, float] = {}
    if profile.alone.seconds:
        pairs = zip(profile.alone.metrics, profile.alone.seconds[0], strict=True)
        alone = {name: round(value, 6) for name, value in pairs if value == value}
    if alone.get("task.cpu_share", 0.0) < CHILDRENS * (profile.cpu_share or 0.0):
        alone = {name: value for name, value in alone.items() if not name.startswith("task.")}
    facts = {
        "cpu_share": profile.cpu_share,
        "cpu_spread": profile.cpu_spread,
        "p_cpu_beside_cache": profile.p_cpu_beside_cache,
    }
    return {"name": profile.program, "alone": alone, **facts}


def window(
    seconds: Annotated[int, typer.Option(min=1, max=3600)] = 10,
    process: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Print this host's metrics for each second, as a window for `POST /v1/colocation/now`.

    Args:
        seconds: length of the window, seconds
        process: id of the program's process, to add its own share of a CPU
    """
    from forerun.data.collectors.interference.collection import SETTINGS, watch
    from forerun.data.collectors.interference.tables import build
    from forerun.features.host_windows import PINNED
    from forerun.features.tables.contention import colocations

    if process is not None and not Path(f"/proc/{process}").is_dir():
        raise InputError(f"No process {process} on this machine.")
    with TemporaryDirectory(prefix="forerun-") as folder:
        watch(Path(folder), seconds * SETTINGS.clock_s, process)
        tables = build(Path(folder) / "journal", SETTINGS.clock_s)
    cpu = pinned_to(process)
    host_window = colocations(tables["runs"], tables["samples"], cpu=cpu)[0].window
    names = list(enumerate(host_window.metrics))
    kept = [i for i, name in names if cpu is not None or not name.startswith(PINNED)]
    rows = [
        [second[i] if isfinite(second[i]) else None for i in kept] for second in host_window.seconds
    ]
    print_json({"metrics": [host_window.metrics[i] for i in kept], "seconds": rows[:seconds]})


def pinned_to(process: int | None) -> int | None:
    """The CPU that a process is pinned to; None where it may use several."""
    try:
        cpus = os.sched_getaffinity(process) if process is not None else set()
    except OSError:
        return None
    return min(cpus) if len(cpus) == 1 else None
