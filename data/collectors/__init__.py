"""Measuring on this machine: collectors of rows that no public dataset has."""

from forerun.data.collectors.collector import Collector
from forerun.data.collectors.cpu import CpuCollector
from forerun.data.collectors.gpu import GpuCollector
from forerun.data.collectors.probe import ProbeCollector

COLLECTORS: tuple[type[Collector], ...] = (CpuCollector, GpuCollector, ProbeCollector)
