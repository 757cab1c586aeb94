"""Measuring on this machine: collectors of rows that no public dataset has."""

from forerun.data.collectors.collector import Collector
from forerun.data.collectors.cpu import CpuCollector

COLLECTORS: tuple[type[Collector], ...] = (CpuCollector,)

__all__ = ["COLLECTORS", "Collector", "CpuCollector"]
