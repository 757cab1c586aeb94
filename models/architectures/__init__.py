"""Latency of architectures of a search space, on devices with a few measurements."""

from forerun.models.architectures.latency import ArchitectureLatency

__all__ = ["ArchitectureLatency"]
