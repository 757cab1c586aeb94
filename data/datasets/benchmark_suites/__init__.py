"""Datasets of benchmark suite results."""
