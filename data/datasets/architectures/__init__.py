"""Datasets of the latency of architectures in search spaces."""
