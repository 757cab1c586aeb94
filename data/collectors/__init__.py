"""Collectors: measurements on this machine, for rows that no public dataset has."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.data.collectors.runner.collector import Collector

    COLLECTORS: tuple[type[Collector], ...]


def __getattr__(name: str) -> Any:
    """`COLLECTORS`, a tuple of classes.

    Loaded on demand: measuring processes (`python -m` of a module in this package) import the
    package too, and start faster the less it imports.
    """
    if name != "COLLECTORS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forerun.data.collectors.latency.cpu import CpuCollector
    from forerun.data.collectors.latency.fingerprint import ProbeCollector
    from forerun.data.collectors.latency.gpu import GpuCollector

    return (CpuCollector, GpuCollector, ProbeCollector)
