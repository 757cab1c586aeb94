"""Intervals of power: how far the law's parts may be off, calibrated on chips and jobs left out.

An end of an interval is the law with its waiting and its dynamic part so many deviations lower or
higher. So the interval of a run that wants far more than the limit is narrow, for it draws the
limit whatever it wants. How many deviations hold nine runs in ten is measured on chips left out in
turn, each counting alike; as these are few, the normal quantile is replaced by Student's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.models.power.law import EFFECTS, MOST_WAITING, Demand, limited_w
from forerun.models.power.runs import PowerRuns

Column = NDArray[np.float64]

LEAST_SHARE, MOST_SHARE = 0.15, 1.05
"""Of the design power: a waiting device, and a short overshoot of its limit."""
COVERAGE: Final = 0.9
MEASURING: Final = 0.02
"""Deviation of the logarithm of what is measured at the limit: averages of one operator over
campaigns differ by 0.1 % in the median and 3.8 % in the mean (torch_op_energy)."""
DEVIATIONS: Final[Mapping[str, tuple[float, float]]] = {
    "unseen": (EFFECTS["waiting"], EFFECTS["dynamic"]),
    "adapted": (0.25, 0.15),
    "seen": (0.1, 0.1),
}
"""How well a device is known -> deviations of the logarithms of its waiting and dynamic power; of
one that is not unseen, round figures that `reach` scales."""
ANYTHING: Final = 100.0
"""Deviations from the law that reach from waiting to the limit: no second chip says how far off
another one is."""
FARTHEST: Final = 50.0
BISECTIONS: Final = 40
FEWEST: Final = 30
"""Rows that a stratum needs for a figure of its own."""


@dataclass(frozen=True)
class LawIntervals:
    """How many deviations an interval reaches to either side of the law.

    Attributes:
        reach: `unseen/network`, `seen/operator` and so on -> deviations.
    """

    reach: Mapping[str, float] = field(default_factory=dict)

    def ends(self, runs: PowerRuns, demand: Demand, known: Sequence[str]) -> tuple[Column, Column]:
        """Low and high of n runs, watts.

        Args:
            runs: n runs.
            demand: what the law says of them.
            known: how well each device is known, keys of `DEVIATIONS`.
        """
        reach = np.array(
            [self._reach(k, s) for k, s in zip(known, runs.single, strict=True)], dtype=np.float64
        )
        return ends(runs, demand, known, reach)

    def _reach(self, known: str, single: bool) -> float:
        workload = "operator" if single else "network"
        for name in (f"{known}/{workload}", known, f"unseen/{workload}", "unseen"):
            if name in self.reach:
                return self.reach[name]
        return ANYTHING

    def to_json(self) -> dict[str, float]:
        """A plain dictionary."""
        return dict(self.reach)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "LawIntervals":
        """The intervals that `to_json` wrote."""
        return cls({name: float(reach) for name, reach in content.items()})


def ends(
    runs: PowerRuns, demand: Demand, known: Sequence[str], reach: Column
) -> tuple[Column, Column]:
    """Power with both parts `reach` deviations lower and higher, at most what boards draw, (n,)."""
    deviations = np.array([DEVIATIONS[one] for one in known]).reshape(-1, 2).T
    tdp = runs.load.tdp_w
    found = []
    for sign in (-1.0, 1.0):
        step = sign * reach
        moved = demand.times(*np.exp(step * deviations))
        moved = moved._replace(waiting_w=np.minimum(moved.waiting_w, MOST_WAITING * tdp))
        found.append(limited_w(runs, moved) * np.exp(step * MEASURING))
    least = np.minimum(demand.waiting_w, LEAST_SHARE * tdp)
    return np.maximum(found[0], least), np.minimum(found[1], MOST_SHARE * tdp)


@dataclass(frozen=True)
class HeldOut:
    """n runs with what a law says that was fitted without their chip, or their job.

    Attributes:
        runs: n runs.
        demand: by that law.
        watts: (n,) measured.
        known: how well their devices are known, a key of `DEVIATIONS`.
    """

    runs: PowerRuns
    demand: Demand
    watts: Column
    known: str

    def deviations(self) -> Column:
        """Least number of deviations whose interval holds each measurement, (n,)."""
        low, high = np.zeros(len(self.runs)), np.full(len(self.runs), FARTHEST)
        known = [self.known] * len(self.runs)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            least, most = ends(self.runs, self.demand, known, middle)
            inside = (least <= self.watts) & (self.watts <= most)
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        return high


def calibrated(parts: Sequence[HeldOut]) -> LawIntervals:
    """Deviations that hold `COVERAGE` of what was left out; each part counts alike.

    Parts of one stratum are few: its quantile is widened by Student's over the normal one with as
    many degrees of freedom as all parts of its kind have, less one.
    """
    reach = {}
    for known in sorted({part.known for part in parts}):
        mine = [part for part in parts if part.known == known]
        values = [part.deviations() for part in mine]
        wider = _student_over_normal(len(mine))
        reach[known] = wider * _quantile(values)
        for workload, single in (("network", False), ("operator", True)):
            own = [v[p.runs.single == single] for v, p in zip(values, mine, strict=True)]
            if sum(map(len, own)) >= FEWEST:
                reach[f"{known}/{workload}"] = wider * _quantile(own)
    return LawIntervals(reach)


def _quantile(values: Sequence[Column]) -> float:
    """The `COVERAGE` quantile of all values, where each part has the same weight."""
    parts = [part for part in values if len(part)]
    pooled = np.concatenate(parts)
    weights = np.concatenate([np.full(len(part), 1.0 / len(part)) for part in parts])
    order = np.argsort(pooled)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(pooled[order][np.searchsorted(reached, COVERAGE - 1e-9)])


def _student_over_normal(parts: int) -> float:
    from scipy.stats import norm, t

    tail = 0.5 * (1.0 + COVERAGE)
    return float(t.ppf(tail, max(parts - 1, 1)) / norm.ppf(tail))
