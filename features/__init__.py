"""Operator graphs, kernels and features made from workloads and devices."""
