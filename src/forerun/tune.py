"""Search for the best settings; its sampler of Optuna needs the extra `tune`.

>>> from forerun.tune import Search
>>> search = Search({"tile": [16, 32, 64]}, minimise="latency_ms")
"""

from forerun.service.python.tune import Search, sampler

__all__ = ("Search", "sampler")
