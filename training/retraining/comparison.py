"""Errors of a candidate next to those of the champion, on the same held-out rows, by slice."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from forerun.data.columns import Column

FILE: Final = "comparison.json"
FEWEST_GROUPS: Final = 5
"""Fewest held-out groups of a slice that is compared."""
DRAWS: Final = 2_000
"""Draws of the bootstrap."""
TAIL_PERCENT: Final = 2.5


@dataclass(frozen=True)
class HeldOutRows:
    """n measured values of one metric, with two predictions of each.

    Attributes:
        measured, before, after: the value, and the predictions of the champion and of the
            candidate, in the unit of the metric, positive; shape (n,).
        groups: group of each row; rows of a group are drawn together.
        facts: property (device, kind, family, precision) -> value of each row; "" for none.
    """

    measured: Column
    before: Column
    after: Column
    groups: Sequence[str]
    facts: Mapping[str, Sequence[str]]


class SliceComparison(BaseModel):
    """Both errors in one slice.

    Attributes:
        slice: property -> value, of those that the slice fixes.
        before, after: mean absolute percentage errors.
        low, high: 95 % confidence interval of `after` - `before`, in percentage points.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    slice: dict[str, str]
    rows: int = Field(ge=1)
    groups: int = Field(ge=1)
    before: float
    after: float
    low: float
    high: float

    @property
    def name(self) -> str:
        """Metric and values, as one line."""
        return " ".join((self.metric, *self.slice.values()))


class Comparison(BaseModel):
    """Errors of a candidate next to those of the champion.

    Attributes:
        champion: version of the predictors that the candidate was compared with.
        measurements: hash of all measurements, of which a part is held out.
        training_rows, held_out_rows: number of rows of both parts.
        slices: slices with `FEWEST_GROUPS` held-out groups; empty where there are too few.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    champion: str
    measurements: str
    training_rows: int
    held_out_rows: int
    slices: tuple[SliceComparison, ...]


def compared(metric: str, rows: HeldOutRows, seed: int = 0) -> list[SliceComparison]:
    """Both errors in each slice with enough groups, wider slices first.

    The confidence interval is that of a paired bootstrap over groups.

    Args:
        metric: name of the metric.
        rows: held-out rows with both predictions.
        seed: seed of the draws.
    """
    errors = [
        100.0 * np.abs(predicted / rows.measured - 1.0) for predicted in (rows.before, rows.after)
    ]
    groups = np.asarray(rows.groups)
    found = []
    for fixed, chosen in _slices(rows.facts, len(groups)):
        names = np.unique(groups[chosen])
        if len(names) < FEWEST_GROUPS:
            continue
        before, after = (error[chosen] for error in errors)
        low, high = _interval(after - before, groups[chosen], seed)
        own = SliceComparison(
            metric=metric,
            slice=fixed,
            rows=len(chosen),
            groups=len(names),
            before=float(before.mean()),
            after=float(after.mean()),
            low=low,
            high=high,
        )
        found.append(own)
    return found


def _slices(
    facts: Mapping[str, Sequence[str]], count: int
) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """The properties and the positions of each slice; equal ones count once."""
    seen: set[str] = set()
    for size in range(len(facts) + 1):
        for names in combinations(facts, size):
            columns = [facts[name] for name in names]
            labels = list(zip(*columns, strict=True)) if columns else [()] * count
            for values in sorted(set(labels)):
                chosen = np.array([row for row in range(count) if labels[row] == values])
                mark = hashlib.sha256(chosen.tobytes()).hexdigest()
                if "" not in values and mark not in seen:
                    seen.add(mark)
                    yield dict(zip(names, values, strict=True)), chosen


def _interval(differences: Column, groups: np.ndarray, seed: int) -> tuple[float, float]:
    """Confidence interval of the mean difference; groups are drawn, not rows."""
    _, codes = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(codes, differences), np.bincount(codes)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, (TAIL_PERCENT, 100.0 - TAIL_PERCENT))
    return float(low), float(high)
