"""Protocols of benchmark suites."""
