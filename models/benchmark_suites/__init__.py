"""Results of benchmark suites: scores of processors, and of systems in coming rounds."""

from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.benchmark_suites.scores import BenchmarkBoost

__all__ = ["BenchmarkBoost", "BenchmarkHistory"]
