"""Datasets of results of benchmark suites."""
