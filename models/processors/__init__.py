"""Latency and peak memory of networks that onnxruntime runs on a CPU.

The latency is a sum over the executed nodes at rates that are inferred from measurements.
"""

from forerun.models.processors.latency import CpuLatency

__all__ = ["CpuLatency"]
