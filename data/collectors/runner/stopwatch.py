"""Timing within a budget, with warm-up and with measures of its reliability: spread and drift."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

Clock = Callable[[], float]
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of the runs of one workload.

    Attributes:
        median_ms: median of single runs, milliseconds, warm-up left out.
        spread: interquartile range over median; 0 where fewer than two runs fitted.
        drift: median of the second half over that of the first, less 1; 0 below four runs.
        repeats: runs that count.
        window_s: seconds from the start of the first run that counts to the end of the last.
        fastest_ms: the quickest of all runs, also of those that do not count: on a busy machine the
            nearest to the time on an idle one.
    """

    median_ms: float
    spread: float
    drift: float
    repeats: int
    window_s: float
    fastest_ms: float

    def columns(self) -> dict[str, Any]:
        """These figures as columns of a table of measurements."""
        figures = asdict(self)
        return {"latency_ms": figures.pop("median_ms"), **figures}

    @property
    def steady(self) -> bool:
        """Whether drift is at most half the spread, or at most `STEADY`.

        Where the level changes between the halves, drift is about as large as the spread.
        """
        return abs(self.drift) <= max(STEADY, self.spread / 2)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """How long to measure.

    Attributes:
        budget_s: time for the runs that count; the least number of them may exceed it.
        warm_up_s: time of runs before; two run in any case, since the first pays for pages, code
            and compilation.
        least, most: runs that count.
        parts: number of parts of a window of many runs; the fastest steady part counts, so that
            temporary disturbances of the others do not.
        clock: seconds, from any start.
        seconds: runs once and returns the seconds; by the clock when None, on a GPU by events.
    """

    budget_s: float = 1.0
    warm_up_s: float = 0.2
    least: int = 3
    most: int = 1000
    parts: int = 1
    clock: Clock = time.perf_counter
    seconds: Callable[[Run], float] | None = None

    @property
    def total_s(self) -> float:
        """Seconds of warm-up and window, to which single runs that are short add little."""
        return self.warm_up_s + self.budget_s

    def time(self, run: Run) -> Timing:
        """Measure `run`, which returns when its work is done; the fastest steady window counts.

        Where the level drifted, or no two parts of the window agree on how fast it is, a second
        window is measured.
        """
        self._warm_up(run)
        found, took_s = self._window(run)
        if not _agree(found) and took_s <= 2 * self.budget_s:
            found += self._window(run)[0]
        fastest = min(found, key=lambda timing: (not timing.steady, timing.median_ms))
        return replace(fastest, fastest_ms=min(timing.fastest_ms for timing in found))

    def _warm_up(self, run: Run) -> None:
        one = self.seconds or self._by_the_clock
        one(run)
        # The first run pays for pages, code and compilation, so it does not predict the second.
        second = self.clock()
        one(run)
        while self.clock() - second < self.warm_up_s:
            one(run)

    def _window(self, run: Run) -> tuple[list[Timing], float]:
        """The parts of a window, and the seconds that it took in all."""
        one = self.seconds or self._by_the_clock
        times: list[float] = []
        ends: list[float] = []
        start = self.clock()
        while len(times) < self.most:
            times.append(one(run))
            gone = self.clock() - start
            ends.append(gone)
            # A run that would end beyond the budget is not started.
            if len(times) >= self.least and gone + times[-1] > self.budget_s:
                break
        count = max(1, min(self.parts, len(times) // PART_RUNS))
        edges = [len(times) * place // count for place in range(count + 1)]
        parts = [
            summary(times[low:high], ends[high - 1] - (ends[low - 1] if low else 0.0))
            for low, high in pairwise(edges)
        ]
        return parts, ends[-1]

    def _by_the_clock(self, run: Run) -> float:
        start = self.clock()
        run()
        return self.clock() - start


STEADY = 0.05
"""Drift up to which a window is steady whatever its spread."""
PART_RUNS = 5
"""Runs of which a part consists at least, so that its median leaves out a disturbed one or two."""


def _agree(parts: Sequence[Timing]) -> bool:
    """Whether another part agrees with a steady part; a single part need only be steady."""
    levels = sorted(part.median_ms for part in parts if part.steady)
    if len(parts) == 1 or not levels:
        return bool(levels)
    return len(levels) > 1 and levels[1] <= levels[0] * (1 + STEADY)


def summary(times_s: Sequence[float], window_s: float) -> Timing:
    """Median, spread and drift of single runs.

    Args:
        times_s: at least one, in the order they were taken.
        window_s: seconds from the first start to the last end.
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
