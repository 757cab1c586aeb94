"""Collectors: measurements of the machine that they run on."""

from forerun.data.collectors.collector import Collector
from forerun.data.collectors.cpu import CpuCollector

COLLECTORS: tuple[type[Collector], ...] = (CpuCollector,)

__all__ = ["COLLECTORS", "Collector", "CpuCollector"]
