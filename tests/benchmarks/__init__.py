"""Timed benchmarks, apart from the test run: `make bench`."""
