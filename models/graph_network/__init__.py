"""Latency of whole networks by a graph network over their kernels."""
