"""Latency of architectures of a search space on devices known by a few measurements."""
