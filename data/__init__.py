"""Datasets, devices, workloads and collectors. Imports nothing from the other folders."""
