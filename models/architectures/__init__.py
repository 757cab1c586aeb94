"""Latency of architectures in a search space, on devices with a few measurements."""

from forerun.models.architectures.latency import ArchitectureLatency

__all__ = ["ArchitectureLatency"]
