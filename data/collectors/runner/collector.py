"""The protocol of collectors of measurements, and the loop that runs them."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Protocol, runtime_checkable

from forerun.data.collectors.runner.budget import Budget
from forerun.data.collectors.runner.journal import KEY, Journal
from forerun.data.collectors.runner.trial import Row, Trial

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
    wanted = _once(collector.plan())
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


def _once(trials: Iterable[Trial]) -> list[Trial]:
    return list({trial.key: trial for trial in trials}.values())


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
