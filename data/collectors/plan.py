"""What to measure first when time is short: one of every kind at a middle size, then the rest."""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from forerun.data.collectors.trial import Trial

WORTH = 1e8
"""FLOPs from which on a trial tells a rate."""


def coverage_first(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The same trials, each group once before any group twice.

    A group begins with its trial of middle cost and goes on by halves, so that wherever the budget
    ends, what was measured spans the costs evenly.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    ordered = [_from_the_middle(group) for group in groups.values()]
    rounds = zip_longest(*ordered)
    return tuple(trial for each in rounds for trial in each if trial is not None)


def _from_the_middle(group: Sequence[Trial]) -> list[Trial]:
    """By cost: the middle, then the middles of both halves, then those of the quarters."""
    by_cost = sorted(group, key=work)
    ranges, ordered = deque([(0, len(by_cost))]), []
    while ranges:
        low, high = ranges.popleft()
        if low < high:
            middle = (low + high - 1) // 2
            ordered.append(by_cost[middle])
            ranges += [(low, middle), (middle + 1, high)]
    return ordered


def work(trial: Trial) -> float:
    """FLOPs of one run; those of a training step are three forward passes."""
    return trial.flops * trial.batch_size * (3.0 if trial.phase == "training" else 1.0)


@dataclass
class Budget:
    """Time for a run of trials, and what the next one will take of it.

    Attributes:
        total_s: in all.
        fixed_s: of a trial beside its slowest runs: a process, warm-up, windows.
        rate: FLOP/s thought of until trials tell.
        runs: that the shortest measurement of a slow workload takes.
    """

    total_s: float
    fixed_s: float = 1.0
    rate: float = 2e9
    runs: int = 5
    _used_s: float = 0.0
    _rates: list[float] = field(default_factory=list)
    _slowness: list[float] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        """Time that is left."""
        return self.total_s - self._used_s

    def guess_s(self, trial: Trial) -> float:
        """What a trial will take, by the slower quarter of what ran so far."""
        middle = self._slowness[len(self._slowness) // 2] if self._slowness else 1.0
        return max(1.0, middle) * self._expected_s(trial)

    def _expected_s(self, trial: Trial) -> float:
        """The same on a machine whose processes start and compile as fast as thought."""
        return self.fixed_s + trial.setup_s + self.runs * work(trial) / self.rate

    def spend(self, trial: Trial, took_s: float, run_ms: float | None) -> None:
        """Book a trial.

        Args:
            trial: that was measured.
            took_s: in all.
            run_ms: one run; None where it failed.
        """
        self._used_s += took_s
        insort(self._slowness, took_s / self._expected_s(trial))
        if run_ms and work(trial) > WORTH:
            insort(self._rates, work(trial) / (run_ms / 1e3))
            self.rate = self._rates[len(self._rates) // 4]

    def within(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """The trials that fit, in order; one that does not waits until it does."""
        waiting = list(trials)
        while True:
            fits = next((t for t in waiting if self.guess_s(t) <= self.left_s), None)
            if fits is None:
                return
            waiting.remove(fits)
            yield fits
