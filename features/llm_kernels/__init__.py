"""Kernels of language models: sizes as arrays, bounds and dimensionless features."""
