"""Latency and peak memory of networks run by onnxruntime on CPUs.

The latency is a sum over the executed nodes at rates inferred from measurements.
"""
