"""`forerun collect window`: current metrics of this host, for `POST /v1/colocation/now`."""

import os
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli.output import print_json


def window(
    seconds: Annotated[
        int, typer.Option(help="length of the window, seconds", min=1, max=3600)
    ] = 10,
    process: Annotated[
        int | None,
        typer.Option(help="id of the program's process, to add its own share of a CPU", min=1),
    ] = None,
) -> None:
    """Print metrics of this host per second, as a window for `POST /v1/colocation/now`."""
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
