"""Latency of architectures of a search space, on a device known by a few measurements alone."""

from forerun.models.architectures.latency import ArchitectureLatency

__all__ = ["ArchitectureLatency"]
