"""Latency of single operators (kernels) on GPUs: boosted trees by family of operators."""
