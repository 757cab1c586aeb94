"""Tests of a suite as rows: settings as numbers, logarithms and codes, and a power law of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.domain.feature_range import FeatureRange

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
RIDGE = 1.0
"""Imagined rows, in deviations of a setting, that hold each exponent near zero."""


def benchmark_of(query: Query) -> Benchmark:
    """The test that a query asks about."""
    assert isinstance(query.workload, Benchmark)
    return query.workload


@dataclass(frozen=True)
class Settings:
    """What training saw of one suite's settings.

    Attributes:
        ranges: lowest and highest of each setting that is a number.
        choices: each setting that is a text -> its values, sorted; their places are the codes.
    """

    ranges: FeatureRange
    choices: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """Settings of these tests; one that is ever a text is one of several choices."""
        seen: dict[str, set[float | str]] = {}
        for query in queries:
            for name, value in benchmark_of(query).settings:
                seen.setdefault(name, set()).add(value)
        texts = {n for n, values in seen.items() if any(isinstance(v, str) for v in values)}
        numbers = tuple(sorted(set(seen) - texts))
        choices = {name: tuple(sorted(str(v) for v in seen[name])) for name in sorted(texts)}
        return cls(FeatureRange.of(numbers, _numbers(numbers, queries)), choices)

    def matrix(self, queries: Sequence[Query]) -> Matrix:
        """Numbers, logarithms, their sums and differences in pairs, codes; shape (n, features).

        NaN stands for a setting that is not given, and for a choice that training did not see.
        """
        logs = self.logarithms(queries)
        pairs = list(combinations(logs.T, 2))
        products = [a + b for a, b in pairs]
        ratios = [a - b for a, b in pairs]
        return np.column_stack(
            [_numbers(self.ranges.names, queries), logs, *products, *ratios, *self._codes(queries)]
        )

    def logarithms(self, queries: Sequence[Query]) -> Matrix:
        """Of the settings that are positive in training, shape (n, settings)."""
        numbers = _numbers(self.ranges.names, queries)[:, self.ranges.low > 0.0]
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(numbers)
        return np.where(np.isfinite(logs), logs, np.nan)

    def limits(self, query: Query) -> tuple[str, ...]:
        """One line a setting that is missing or outside of what training saw."""
        given = dict(benchmark_of(query).settings)
        names = (*self.ranges.names, *self.choices)
        missing = [f"{name} is not given" for name in names if name not in given]
        strange = [f"{name} is not known" for name in given if name not in names]
        new = [
            f"{name} is {given[name]!r}, which training did not see"
            for name, values in self.choices.items()
            if name in given and str(given[name]) not in values
        ]
        row = _numbers(self.ranges.names, [query])[0]
        return (*missing, *strange, *new, *self.ranges.outside(row))

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {"ranges": self.ranges.to_json(), "choices": dict(self.choices)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The settings that `to_json` wrote."""
        choices = {name: tuple(values) for name, values in content["choices"].items()}
        return cls(FeatureRange.from_json(content["ranges"]), choices)

    def _codes(self, queries: Sequence[Query]) -> list[Column]:
        given = [dict(benchmark_of(query).settings) for query in queries]
        found = []
        for name, values in self.choices.items():
            code = {value: float(place) for place, value in enumerate(values)}
            found.append(np.array([code.get(str(one.get(name)), np.nan) for one in given]))
        return found


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers of settings: it goes on where trees stand still.

    Attributes:
        level: logarithm at the middle of training.
        middle: logarithm of each setting there.
        exponents: one a setting.
    """

    level: float
    middle: tuple[float, ...]
    exponents: tuple[float, ...]

    @classmethod
    def fit(cls, logs: Matrix, target: Column) -> Self:
        """Ridge regression of n logarithms on those of the settings."""
        middle = np.nanmean(logs, axis=0)
        centred = np.nan_to_num(logs - middle)
        scale = centred.std(axis=0)
        # A setting that never varies teaches nothing.
        varies = scale > 1e-9
        exponents = np.zeros(len(middle))
        rows = centred[:, varies] / scale[varies]
        level = float(target.mean())
        inner = rows.T @ rows + RIDGE * np.eye(rows.shape[1])
        exponents[varies] = np.linalg.solve(inner, rows.T @ (target - level)) / scale[varies]
        return cls(level, tuple(middle.tolist()), tuple(exponents.tolist()))

    def predict(self, logs: Matrix) -> Column:
        """Logarithms, shape (n,); a setting that is not given counts as the middle."""
        # Summed row by row: a row must not depend on its neighbours.
        terms = np.nan_to_num(logs - np.array(self.middle)) * np.array(self.exponents)
        return np.asarray(self.level + terms.sum(axis=1))


def _numbers(names: Sequence[str], queries: Sequence[Query]) -> Matrix:
    rows = np.full((len(queries), len(names)), np.nan)
    for row, query in enumerate(queries):
        given = dict(benchmark_of(query).settings)
        for column, name in enumerate(names):
            value = given.get(name)
            if isinstance(value, float | int):
                rows[row, column] = value
    return rows
