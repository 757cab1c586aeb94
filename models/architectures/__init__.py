"""Latency of architectures in a search space, on devices with a few measurements."""
