"""Datasets of latencies of architectures in search spaces."""
