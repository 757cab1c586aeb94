"""Datasets of the latency of operators and networks."""
