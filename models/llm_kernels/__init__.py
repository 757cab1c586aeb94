"""Predictors of the time and power of kernels of language models."""
