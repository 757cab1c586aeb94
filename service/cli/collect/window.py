"""`forerun collect window`: what this host shows now, for `POST /v1/colocation/now`."""

import os
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli.output import print_json


def window(
    seconds: Annotated[int, typer.Option(help="for how long", min=1, max=3600)] = 10,
    process: Annotated[
        int | None, typer.Option(help="of the program: its own share of a CPU", min=1)
    ] = None,
) -> None:
    """What this host shows, second by second, as `POST /v1/colocation/now` takes a window."""
    from forerun.data.collectors.interference.live_window import watch
    from forerun.data.collectors.interference.own_program import SETTINGS
    from forerun.data.collectors.interference.tables import build
    from forerun.features.host_windows import PINNED
    from forerun.features.tables.contention import colocations

    if process is not None and not Path(f"/proc/{process}").is_dir():
        raise InputError(f"No process {process} on this machine.")
    with TemporaryDirectory(prefix="forerun-") as folder:
        watch(Path(folder), seconds * SETTINGS.clock_s, process)
        tables = build(Path(folder) / "journal", SETTINGS.clock_s)
    cpu = pinned_to(process)
    shown = colocations(tables["runs"], tables["samples"], cpu=cpu)[0].window
    names = list(enumerate(shown.metrics))
    kept = [i for i, name in names if cpu is not None or not name.startswith(PINNED)]
    rows = [[one[i] if isfinite(one[i]) else None for i in kept] for one in shown.seconds]
    print_json({"metrics": [shown.metrics[i] for i in kept], "seconds": rows[:seconds]})


def pinned_to(process: int | None) -> int | None:
    """The CPU that a process is pinned to; None where it may use several."""
    try:
        cpus = os.sched_getaffinity(process) if process is not None else set()
    except OSError:
        return None
    return min(cpus) if len(cpus) == 1 else None
