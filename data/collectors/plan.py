"""What to measure first when time is short: one of every kind at a middle size, then the rest."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from forerun.data.collectors.trial import Trial

SLOWEST = 1e9
"""FLOP/s of the slowest machine thought of: what a first trial is guessed by."""


def coverage_first(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The same trials, each group once before any group twice.

    A group begins with its trial of middle cost and goes on outwards, so that wherever the budget
    ends, what was measured spans as much as it can.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    ordered = [_from_the_middle(group) for group in groups.values()]
    rounds = zip_longest(*ordered)
    return tuple(trial for each in rounds for trial in each if trial is not None)


def _from_the_middle(group: Sequence[Trial]) -> list[Trial]:
    by_cost = sorted(group, key=lambda trial: trial.flops)
    centre = (len(by_cost) - 1) / 2
    places = sorted(range(len(by_cost)), key=lambda place: abs(place - centre))
    return [by_cost[place] for place in places]


@dataclass
class Budget:
    """Time for a run of trials, and what the next one will take of it.

    Attributes:
        total_s: in all.
        fixed_s: of a trial beside its runs: a process, warm-up, the window.
        runs: that the shortest measurement of a slow workload takes.
    """

    total_s: float
    fixed_s: float = 1.0
    runs: int = 5
    _used_s: float = 0.0
    _rates: list[float] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        """Time that is left."""
        return self.total_s - self._used_s

    def guess_s(self, trial: Trial) -> float:
        """What a trial will take, by the slower half of what ran so far."""
        rates = sorted(self._rates)
        rate = rates[len(rates) // 4] if rates else SLOWEST
        return self.fixed_s + self.runs * trial.flops * max(trial.batch_size, 1) / rate

    def spend(self, trial: Trial, took_s: float, run_ms: float | None) -> None:
        """Book a trial.

        Args:
            trial: that was measured.
            took_s: in all.
            run_ms: one run; None where it failed.
        """
        self._used_s += took_s
        work = trial.flops * max(trial.batch_size, 1)
        if run_ms and work > 1e8:
            self._rates.append(work / (run_ms / 1e3))

    def within(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """The trials that fit, in order; one that does not is passed over for shorter ones."""
        for trial in trials:
            if self.guess_s(trial) <= self.left_s:
                yield trial
