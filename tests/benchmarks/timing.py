"""Seconds that some work takes."""

import time
from collections.abc import Callable
from typing import Any


def seconds(work: Callable[[], Any]) -> float:
    """Seconds of one run of some work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
