"""Results of benchmark suites: tests with settings, and systems in future rounds."""

from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.benchmark_suites.scores import BenchmarkBoost

__all__ = ["BenchmarkBoost", "BenchmarkHistory"]
