"""What a collector of measurements is, and the loop that all of them run."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from forerun.data.collectors.journal import Journal
from forerun.data.collectors.plan import Budget, coverage_first
from forerun.data.collectors.trial import Row, Trial

Tell = Callable[[Trial, Row, float], None]
"""Called after each trial with its row and the seconds that are left."""


@runtime_checkable
class Collector(Protocol):
    """Measures workloads on the machine that it runs on.

    Attributes:
        name: the verb after `forerun collect`.
    """

    name: ClassVar[str]

    def available(self) -> str | None:
        """Why it cannot measure here, in one line; None where it can."""

    def plan(self) -> tuple[Trial, ...]:
        """What it would measure with time without end."""

    def about(self) -> dict[str, Any]:
        """What the rows hold for: machine and settings, which a resumed run must share."""

    def measure(self, trial: Trial) -> Row:
        """One row: metrics, repeats, spread, window_s, status, and the reason of what is null."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What became of a plan.

    Attributes:
        measured: trials taken in this run.
        resumed: trials that an earlier run had taken.
        left: trials for which there was no time.
    """

    measured: int
    resumed: int
    left: int


def collect(
    collector: Collector,
    journal: Journal,
    budget_s: float,
    *,
    trials: Sequence[Trial] | None = None,
    in_order: bool = False,
    tell: Tell | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Collected:
    """Measure what the journal lacks, coverage first, until the budget ends.

    Every row is in the journal as soon as it is taken: a run that is killed goes on from there.

    Args:
        collector: that measures.
        journal: where rows are kept.
        budget_s: time for this run.
        trials: what to measure; the collector's plan when None.
        in_order: measure as listed in place of coverage first.
        tell: told of each row.
        clock: seconds.

    Raises:
        OtherRun: the journal was begun by another machine or with other settings.
    """
    journal.open(collector.about())
    wanted = _once(collector.plan() if trials is None else trials)
    done = journal.done()
    todo = [trial for trial in wanted if trial.key not in done]
    budget, measured = Budget(budget_s), 0
    for trial in budget.within(todo if in_order else coverage_first(todo)):
        start = clock()
        row = trial.columns() | collector.measure(trial)
        journal.add(trial.key, row)
        budget.spend(trial, clock() - start, row.get("latency_ms"))
        measured += 1
        if tell is not None:
            tell(trial, row, budget.left_s)
    return Collected(measured, len(wanted) - len(todo), len(todo) - measured)


def _once(trials: Iterable[Trial]) -> list[Trial]:
    return list({trial.key: trial for trial in trials}.values())
