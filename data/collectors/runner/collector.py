"""The protocol of collectors, and the loop that runs their trials within a time budget."""

import time
from bisect import bisect, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import accumulate, zip_longest
from math import inf, log
from typing import Any, ClassVar, Protocol, runtime_checkable

from forerun.data.collectors.runner.journal import KEY, Journal
from forerun.data.collectors.runner.trial import Row, Trial

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


Report = Callable[[Trial, Row, float], None]
"""Called after each trial with its row and the seconds that are left."""


@runtime_checkable
class Collector(Protocol):
    """Measures workloads on the machine that it runs on.

    Attributes:
        name: the verb after `forerun collect`.
        rate: FLOP/s of a slow machine of its kind, from which the first times are predicted.
    """

    name: ClassVar[str]
    rate: ClassVar[float]

    def fixed_s(self, trial: Trial) -> float:
        """Seconds that a trial takes apart from its slowest runs: a process, warm-up, windows."""

    def available(self) -> str | None:
        """Why it cannot measure here, in one line; None where it can."""

    def plan(self) -> tuple[Trial, ...]:
        """Trials that it would measure without a budget, the most informative first."""

    def about(self) -> dict[str, Any]:
        """What the rows hold for: machine and settings, which a resumed run must share.

        They become columns of every row.
        """

    def measure(self, trial: Trial) -> Row:
        """One row: metrics, repeats, spread, window_s, status, and the reason of what is null.

        Raises:
            Broken: nothing can be measured in this process any more.
        """


class Broken(Exception):
    """A collector cannot go on in this process; a new one goes on with the journal.

    Args:
        row: row of the trial after which it cannot go on.
        why: one line.
    """

    def __init__(self, row: Row, why: str) -> None:
        self.row = row
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Collected:
    """Outcome of a plan.

    Attributes:
        measured: trials taken in this run.
        resumed: trials that an earlier run had taken.
        left: trials for which there was no time.
        again: unsteady trials that were taken once more.
    """

    measured: int
    resumed: int
    left: int
    again: int = 0


def collect(
    collector: Collector,
    journal: Journal,
    budget_s: float,
    *,
    unsteady: float | None = None,
    report: Report | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Collected:
    """Measure what the journal lacks, in the order of the plan, until the budget ends.

    Every row is in the journal as soon as it is measured: a killed run resumes from there.

    Args:
        collector: measures each trial.
        journal: where rows are kept.
        budget_s: seconds for this run.
        unsteady: spread from which on a trial is measured again in what is left of the budget, the
            least steady first; of both rows the steadier counts. None measures each once.
        report: called with each trial, its row and the seconds left.
        clock: returns the time in seconds.

    Raises:
        OtherRun: the journal was begun by another machine or with other settings.
        Broken: the collector cannot go on in this process; the row of that trial is kept.
    """
    about = collector.about()
    journal.open(about)
    wanted = list({trial.key: trial for trial in collector.plan()}.values())
    done = journal.done()
    todo = [trial for trial in wanted if trial.key not in done]
    budget, count = Budget(budget_s, collector.fixed_s, collector.rate), 0

    def take(trial: Trial, than: float = inf) -> None:
        """Measure a trial; its row is stored where its spread is below `than`."""
        start = clock()
        try:
            row = trial.columns() | about | collector.measure(trial)
        except Broken as error:
            journal.add(trial.key, trial.columns() | about | error.row)
            raise
        if row.get("spread", 0.0 if than == inf else inf) < than:
            journal.add(trial.key, row)
        budget.spend(trial, clock() - start, row.get("latency_ms"))
        if report is not None:
            report(trial, row, budget.left_s)

    for trial in budget.within(todo):
        take(trial)
        count += 1
    left, again = len(todo) - count, 0
    if unsteady is not None and not left:
        spreads = _spreads(journal, unsteady)
        shaky = sorted((t for t in wanted if t.key in spreads), key=lambda t: -spreads[t.key])
        for trial in budget.within(shaky):
            take(trial, spreads[trial.key])
            again += 1
    return Collected(count, len(wanted) - len(todo), left, again)


def _spreads(journal: Journal, unsteady: float) -> dict[str, float]:
    """Key -> spread of trials whose repeats spread more than `unsteady`."""
    good = (row for row in journal.rows() if row.get("status") == "ok")
    spreads = {str(row[KEY]): float(row.get("spread") or 0.0) for row in good}
    return {key: spread for key, spread in spreads.items() if spread > unsteady}


def progress_line(trial: Trial, row: Row, left_s: float) -> str:
    """A readable line about a measured trial."""
    if row["status"] in ("ok", "throttled"):
        parts = [f"{row['latency_ms']:.4g} ms, spread {100 * row['spread']:.1f} %"]
        parts.append(f"{row['repeats']} runs")
        parts += [f"{row['power_w']:.0f} W"] if row.get("power_w") else []
        parts += ["throttled"] if row["status"] == "throttled" else []
        found = ", ".join(parts)
    else:
        found = f"{row['status']}: {row.get('reason', '')}"
    return f"{trial.name}: {found} ({max(left_s, 0):.0f} s left)"
