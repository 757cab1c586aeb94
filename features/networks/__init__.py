"""Whole networks as launched kernels: features, graphs, and the host's work."""
