"""The order of trials under a time budget, and predictions of how long the next will take."""

from bisect import bisect, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import accumulate, zip_longest
from math import log

from forerun.data.collectors.runner.trial import Trial

WORTH = 1e8
"""FLOPs from which on a trial's time gives a rate."""
ALIKE = 8.0
"""Factor of work within which trials' rates predict each other's."""
NEAREST = 4
"""Most trials on either side, by work, whose rates are used for a prediction."""

Seconds = Callable[[Trial], float]


def coverage_first(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The same trials, each group once before any group twice.

    A group starts with its trial of median cost and continues by bisection, so that wherever the
    budget ends, the measured trials span the costs evenly.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    ordered = [_from_the_middle(group) for group in groups.values()]
    rounds = zip_longest(*ordered)
    return tuple(trial for each in rounds for trial in each if trial is not None)


def _from_the_middle(group: Sequence[Trial]) -> list[Trial]:
    """Trials by cost: the median, then the medians of both halves, then those of the quarters."""
    by_cost = sorted(group, key=work)
    ranges, ordered = deque([(0, len(by_cost))]), []
    while ranges:
        low, high = ranges.popleft()
        if low < high:
            middle = (low + high - 1) // 2
            ordered.append(by_cost[middle])
            ranges += [(low, middle), (middle + 1, high)]
    return ordered


def side_by_side(plans: Iterable[Iterable[Trial]], seconds: Seconds) -> tuple[Trial, ...]:
    """Several plans merged, each in its order, with equal time for each wherever the budget ends.

    Args:
        plans: the plans, in the order in which they take turns.
        seconds: predicted seconds of a trial.
    """

    def timed(place: int, trials: Sequence[Trial]) -> Iterator[tuple[float, int, int]]:
        ends = accumulate(map(seconds, trials))
        return ((end, place, number) for number, end in enumerate(ends))

    ordered = [tuple(trials) for trials in plans]
    turns = merge(*(timed(place, trials) for place, trials in enumerate(ordered)))
    return tuple(ordered[place][number] for _, place, number in turns)


def work(trial: Trial) -> float:
    """FLOPs of one run; those of a training step are three forward passes."""
    return trial.flops * trial.batch_size * (3.0 if trial.phase == "training" else 1.0)


@dataclass
class Budget:
    """A time budget for trials, with predictions of the time of the next one.

    Attributes:
        total_s: seconds in all.
        fixed_s: seconds of a trial apart from its slowest runs: a process, warm-up, windows.
        rate: FLOP/s assumed until trials have been measured.
        runs: number of runs that the shortest measurement of a slow workload takes.
    """

    total_s: float
    fixed_s: Seconds
    rate: float = 2e9
    runs: int = 5
    _used_s: float = 0.0
    _rates: list[tuple[float, float]] = field(default_factory=list)
    _slowness: list[float] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.total_s - self._used_s

    def guess_s(self, trial: Trial) -> float:
        """Predicted seconds of a trial, from the pace of the trials so far."""
        middle = self._slowness[len(self._slowness) // 2] if self._slowness else 1.0
        return max(1.0, middle) * self._expected_s(trial)

    def _expected_s(self, trial: Trial) -> float:
        """Expected seconds of a trial if starting processes and compiling take what was assumed."""
        slow_runs_s = self.runs * work(trial) / self._rate_of(trial)
        return self.fixed_s(trial) + trial.setup_s + slow_runs_s

    def _rate_of(self, trial: Trial) -> float:
        """FLOP/s, the lower quartile over trials of similar work, else that of the nearest one."""
        if not self._rates:
            return self.rate
        size = log(max(work(trial), WORTH))
        place = bisect(self._rates, (size, 0.0))
        near = self._rates[max(0, place - NEAREST) : place + NEAREST]
        alike = sorted(rate for other, rate in near if abs(other - size) < log(ALIKE))
        if alike:
            return alike[len(alike) // 4]
        return min(near, key=lambda known: abs(known[0] - size))[1]

    def spend(self, trial: Trial, took_s: float, run_ms: float | None) -> None:
        """Record the time of a trial.

        Args:
            trial: the trial that was measured.
            took_s: seconds that it took in all.
            run_ms: milliseconds of one run; None where it failed.
        """
        self._used_s += took_s
        insort(self._slowness, took_s / self._expected_s(trial))
        if run_ms and work(trial) > WORTH:
            insort(self._rates, (log(work(trial)), work(trial) / (run_ms / 1e3)))

    def within(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """The trials that fit into the budget, in order; others are tried again after each."""
        waiting = list(trials)
        while True:
            fits = next((t for t in waiting if self.guess_s(t) <= self.left_s), None)
            if fits is None:
                return
            waiting.remove(fits)
            yield fits
