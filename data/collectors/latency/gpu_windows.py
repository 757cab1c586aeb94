"""How much time trials on a GPU get: windows of latency, and windows of power for some of them.

Budgets are minutes and trials are thousands, so time goes where it informs most. Latency settles in
some tens of milliseconds. Power does not: the energy counter moves every 20 to 100 ms, and a chip
takes seconds to warm up. So every network gets a short window between two steps of the counter, and
one in sixteen a long one in its place, after a rest and a warm-up, with which the short ones can be
compared; of operators one in six gets a short window and the others none, since similar operators
are measured. The choice follows from a trial's key, so that a resumed run chooses as the first did.
The column `power_window_s` holds the length of the window that a row's power was measured in.
"""

from dataclasses import dataclass

from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Trial
from forerun.data.collectors.system.nvml import PowerWindow
from forerun.data.graph import Operator

SHORT_S, LONG_S = 0.2, 2.0
"""Seconds of a short and of a long window of power."""
REST_S, WARM_UP_S = 0.3, 0.5
"""Seconds of rest and of warm-up before a long window."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The windows of one kind of trials.

    Attributes:
        latency: window of single runs.
        most: window of power of most trials; None measures none.
        few: the same of one trial in `one_in`.
        one_in: number of trials of which one gets `few`.
    """

    latency: Stopwatch
    most: PowerWindow | None = None
    few: PowerWindow | None = None
    one_in: int = 1

    def power(self, trial: Trial) -> PowerWindow | None:
        """The window of power of a trial."""
        return self.most if int(trial.key, 16) % self.one_in else self.few

    def total_s(self, trial: Trial) -> float:
        """Seconds of all windows, to which single runs that are short add little."""
        power = self.power(trial)
        return self.latency.total_s + (power.total_s if power else 0.0)


@dataclass(frozen=True, slots=True)
class Pacing:
    """The windows of trials of operators and of networks."""

    operators: Pace
    networks: Pace

    @classmethod
    def to_a_budget(cls, power_s: float = LONG_S) -> "Pacing":
        """Windows for thousands of operators, or hundreds of trials of networks, in nine minutes.

        Args:
            power_s: seconds of long windows of power; 0 measures no power.
        """
        short = PowerWindow(min(SHORT_S, power_s)) if power_s > 0 else None
        long = PowerWindow(power_s, WARM_UP_S, REST_S) if power_s > 0 else None
        return cls(
            operators=Pace(Stopwatch(0.03, 0.015, most=300), None, short, one_in=6),
            networks=Pace(Stopwatch(0.12, 0.03), short, long, one_in=16),
        )

    def of(self, trial: Trial) -> Pace:
        """The windows of a trial's kind."""
        return self.operators if isinstance(trial.subject, Operator) else self.networks
