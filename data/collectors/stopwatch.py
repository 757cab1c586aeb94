"""Timing that says how far it can be trusted: warm-up, median, spread, drift, runs to a budget."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

Clock = Callable[[], float]
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """What the runs of one workload took.

    Attributes:
        median_ms: of single runs, warm-up left out.
        spread: interquartile range over median; 0 where fewer than two runs fitted.
        drift: median of the second half over that of the first, less 1; 0 below four runs.
        repeats: runs that count.
        window_s: from the start of the first run that counts to the end of the last.
        fastest_ms: the quickest run, which on a busy machine is the nearest to a quiet one.
    """

    median_ms: float
    spread: float
    drift: float
    repeats: int
    window_s: float
    fastest_ms: float

    def columns(self) -> dict[str, Any]:
        """As columns of a table of measurements."""
        return {
            "latency_ms": self.median_ms,
            "spread": self.spread,
            "drift": self.drift,
            "repeats": self.repeats,
            "window_s": self.window_s,
            "fastest_ms": self.fastest_ms,
        }

    @property
    def steady(self) -> bool:
        """Whether the halves agree as well as single runs do, or within `STEADY`."""
        return abs(self.drift) <= max(STEADY, self.spread)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """How long to measure.

    Attributes:
        budget_s: time for the runs that count; the least number of them may exceed it.
        warm_up_s: time of runs before; two run in any case, since the first pays for pages, code
            and compilation.
        least, most: runs that count.
        clock: seconds, from any start.
        seconds: runs once and says how long that took; by the clock when None, on a GPU by events.
    """

    budget_s: float = 1.0
    warm_up_s: float = 0.2
    least: int = 3
    most: int = 1000
    clock: Clock = time.perf_counter
    seconds: Callable[[Run], float] | None = None

    @property
    def total_s(self) -> float:
        """Warm-up and window, where single runs are short beside them."""
        return self.warm_up_s + self.budget_s

    def time(self, run: Run) -> Timing:
        """Measure `run`, which returns when its work is done.

        A window in which the level drifted is measured once more, and the steadier one counts.
        """
        self._warm_up(run)
        first = self._window(run)
        if first.steady or first.window_s > 2 * self.budget_s:
            return first
        again = self._window(run)
        return min(first, again, key=lambda timing: abs(timing.drift))

    def _warm_up(self, run: Run) -> None:
        one = self.seconds or self._by_the_clock
        one(run)
        # The first run pays for pages, code and compilation, so it tells nothing of the second.
        second = self.clock()
        one(run)
        while self.clock() - second < self.warm_up_s:
            one(run)

    def _window(self, run: Run) -> Timing:
        one = self.seconds or self._by_the_clock
        times: list[float] = []
        start = self.clock()
        while len(times) < self.most:
            times.append(one(run))
            # A run that would end beyond the budget is not begun.
            gone = self.clock() - start
            if len(times) >= self.least and gone + times[-1] > self.budget_s:
                break
        return summary(times, self.clock() - start)

    def _by_the_clock(self, run: Run) -> float:
        start = self.clock()
        run()
        return self.clock() - start


STEADY = 0.05
"""Drift that is noise at any spread."""


def summary(times_s: Sequence[float], window_s: float) -> Timing:
    """Median, spread and drift of single runs.

    Args:
        times_s: at least one, in the order they were taken.
        window_s: from the first start to the last end.
    """
    middle = median(times_s)
    spread = drift = 0.0
    if len(times_s) >= 2 and middle > 0:
        low, _, high = quantiles(times_s, n=4, method="inclusive")
        spread = (high - low) / middle
    if len(times_s) >= 4:
        half = len(times_s) // 2
        drift = median(times_s[-half:]) / max(median(times_s[:half]), 1e-12) - 1
    return Timing(1e3 * middle, spread, drift, len(times_s), window_s, 1e3 * min(times_s))
