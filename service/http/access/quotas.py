"""Requests per second of each key: a token bucket of one second's requests."""

import math
import time
from collections.abc import Callable

from forerun.data.errors import InputError


class TooManyRequests(InputError):
    """The key has sent more requests per second than it may."""

    slug, status = "too-many-requests", 429

    def __init__(self, per_s: float, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            f"A key may send {per_s:g} requests a second; ask again in {retry_after_s} s, or let "
            "the operator raise FORERUN_REQUESTS_PER_S_PER_KEY."
        )


class Quotas:
    """Counts the requests of each key in this process.

    Args:
        per_s: requests per second of a key; None for no limit. As many, at least one, may come at
            once after a pause.
        clock: seconds that only grow.
    """

    def __init__(self, per_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> TooManyRequests | None:
        """Count a request of a key.

        Returns:
            The problem where the key has no request left, which is then not counted.
        """
        if self._per_s is None:
            return None
        most, now = max(1.0, self._per_s), self._clock()
        left, then = self._left.get(key, (most, now))
        left = min(most, left + (now - then) * self._per_s)
        if left < 1:
            self._left[key] = left, now
            return TooManyRequests(self._per_s, math.ceil((1 - left) / self._per_s))
        self._left[key] = left - 1, now
        return None
