"""Whole networks as launched kernels: features, kernel graphs, and the host's dispatch work."""
