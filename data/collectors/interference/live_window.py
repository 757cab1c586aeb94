"""Metrics of this host over some seconds, journaled like a run of a collection."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from forerun.data.collectors.interference.collection import pinned, watched
from forerun.data.collectors.interference.own_program import SETTINGS
from forerun.data.collectors.runner.line_journal import LineJournal
from forerun.data.collectors.system.host_inventory import usable_cpus


def watch(
    folder: Path, seconds: float, process: int | None = None, cpus: Sequence[int] | None = None
) -> None:
    """Journal a session of one run without a victim.

    Args:
        folder: folder of the collection.
        seconds: length of the window.
        process: process whose share of a CPU is also read; none when None.
        cpus: CPUs that may be used; all that this process may use when None.
    """
    usable = usable_cpus() if cpus is None else list(cpus)
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
