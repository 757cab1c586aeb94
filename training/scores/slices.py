"""Errors of two predictors on the same rows, by slice, and which slices got worse beyond the noise.

Slices are all combinations of properties (device, family, precision, phase). Rows of one group,
such as a workload, are drawn together by the bootstrap. A slice of few groups is judged by what
there is: it got worse where each of its groups did, by more than seeds explain.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from forerun.data.columns import Column, Mask

FEWEST_GROUPS: Final = 5
"""Fewest groups of a slice whose noise is that of the bootstrap."""
SEED_NOISE: Final = 0.05
"""Noise relative to a score where none is known. Two standard deviations of the difference of two
fits, over three seeds of the four tasks of `torch_op_energy`, are 0.5, 4, 4 and 10 % of the error.
"""
DRAWS: Final = 2_000
"""Draws of the bootstrap."""
TAIL_PERCENT: Final = 2.5


@dataclass(frozen=True)
class PairedErrors:
    """Errors of n rows, or means of so many rows, by two predictors.

    Attributes:
        before, after: absolute percentage errors, shape (n,).
        sizes: number of rows that each is the mean of, shape (n,).
        groups: group of each; those of one group are drawn together.
        facts: property -> value of each; "" for none.
    """

    before: Column
    after: Column
    sizes: Column
    groups: Sequence[str]
    facts: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        measured: Column,
        before: Column,
        after: Column,
        groups: Sequence[str],
        facts: Mapping[str, Sequence[str]],
    ) -> "PairedErrors":
        """Errors of two predictions, shape (n,), of n positive measured values."""
        errors = [100.0 * np.abs(predicted / measured - 1.0) for predicted in (before, after)]
        return cls(errors[0], errors[1], np.ones(len(measured)), groups, facts)


class SliceChange(BaseModel):
    """Both errors in one slice.

    Attributes:
        metric: name of the metric.
        slice: property -> value, of those that the slice fixes.
        rows, groups: number of rows, and of groups of them.
        before, after: mean absolute percentage errors.
        low, high: range of `after` - `before`, in percentage points: a 95 % confidence interval, or
            that of its groups where these are few.
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

    @property
    def is_worse(self) -> bool:
        """Whether the error grew beyond its noise."""
        grown = self.after - self.before
        return self.low > 0.0 and (
            self.groups >= FEWEST_GROUPS or grown > SEED_NOISE * abs(self.before)
        )


def compared(metric: str, errors: PairedErrors, seed: int = 0) -> list[SliceChange]:
    """Both errors in each slice, wider slices first.

    Args:
        metric: name of the metric.
        errors: of the same rows.
        seed: seed of the bootstrap.
    """
    groups = np.asarray(errors.groups)
    found = []
    for fixed, chosen in _slices(errors.facts, len(groups)):
        sizes = errors.sizes[chosen]
        before, after = errors.before[chosen], errors.after[chosen]
        low, high = _range(after - before, sizes, groups[chosen], seed)
        own = SliceChange(
            metric=metric,
            slice=fixed,
            rows=int(sizes.sum()),
            groups=len(np.unique(groups[chosen])),
            before=float(np.average(before, weights=sizes)),
            after=float(np.average(after, weights=sizes)),
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
            labels = list(zip(*(facts[name] for name in names), strict=True)) or [()] * count
            chosen: dict[tuple[str, ...], list[int]] = {}
            for row, values in enumerate(labels):
                chosen.setdefault(values, []).append(row)
            for values, rows in sorted(chosen.items()):
                mark = hashlib.sha256(np.array(rows).tobytes()).hexdigest()
                if "" not in values and mark not in seen:
                    seen.add(mark)
                    yield dict(zip(names, values, strict=True)), np.array(rows)


def _range(
    differences: Column, sizes: Column, groups: np.ndarray, seed: int
) -> tuple[float, float]:
    """Confidence interval of the mean difference, or the range over few groups."""
    _, codes = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(codes, differences * sizes), np.bincount(codes, sizes)
    if len(sums) < FEWEST_GROUPS:
        means = sums / counts
        return float(means.min()), float(means.max())
    drawn = np.random.default_rng(seed).integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, (TAIL_PERCENT, 100.0 - TAIL_PERCENT))
    return float(low), float(high)


def graded(
    measured: Column, predicted: Column, low: Column, high: Column, grades: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Grade -> share of all answers, coverage (both percent) and median ratio of its intervals.

    Args:
        measured: shape (n,), positive.
        predicted: shape (n,); NaN where nothing was answered.
        low: lower ends, shape (n,); NaN for none.
        high: upper ends, shape (n,).
        grades: grade of each of the n answers, empty for none.
    """
    known, given = np.isfinite(measured) & np.isfinite(predicted), np.asarray(grades)
    found: dict[str, dict[str, float]] = {}
    for grade in sorted(set(given[known].tolist()) - {""}):
        own: Mask = known & (given == grade)
        found[grade] = {"share": 100.0 * float(own.sum() / known.sum())}
        ranged = own & np.isfinite(low) & np.isfinite(high)
        if ranged.any():
            inside = (low[ranged] <= measured[ranged]) & (measured[ranged] <= high[ranged])
            found[grade]["coverage_90"] = 100.0 * float(inside.mean())
        positive = ranged & (low > 0.0)
        if positive.any():
            ratio = float(np.median(high[positive] / low[positive]))
            found[grade]["median_interval_ratio"] = ratio
    return found
