"""CPU time, memory and open files of each process of the service."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from forerun.service.http import shared_folder

PROC: Final = Path("/proc")
LABEL: Final = "pid"


def process_metrics() -> Iterator[Metric]:
    """`process_*` of Prometheus, by process id; nothing where the system has no /proc.

    Sums over `pid` are those of the service; a process that is replaced begins at zero.
    """
    families: dict[str, Metric] = {}
    for pid in _pids():
        for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
            made = CounterMetricFamily if found.type == "counter" else GaugeMetricFamily
            family = families.setdefault(
                found.name, made(found.name, found.documentation, labels=(LABEL,))
            )
            for sample in found.samples:
                family.add_sample(sample.name, {LABEL: str(pid)}, sample.value)
    yield from families.values()


def _pids() -> list[int]:
    """Process ids of the service: this one alone, or the parent of all workers and its children."""
    if shared_folder.in_use() is None:
        return [os.getpid()]
    parent = os.getppid()
    try:
        children = (PROC / f"{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return [os.getpid()]
    return [parent, *map(int, children)]
