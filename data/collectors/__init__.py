"""Measuring on this machine: collectors of rows that no public dataset has."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.data.collectors.runner.collector import Collector

    COLLECTORS: tuple[type[Collector], ...]


def __getattr__(name: str) -> Any:
    """`COLLECTORS`, a tuple of classes.

    Loaded when asked for: the processes that measure (`python -m` of a module here) import this
    package too, and start the sooner the less it holds.
    """
    if name != "COLLECTORS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forerun.data.collectors.latency.cpu import CpuCollector
    from forerun.data.collectors.latency.fingerprint import ProbeCollector
    from forerun.data.collectors.latency.gpu import GpuCollector

    return (CpuCollector, GpuCollector, ProbeCollector)
