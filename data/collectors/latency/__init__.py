"""Collectors of latency, memory and power on processors and GPUs."""
