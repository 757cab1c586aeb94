"""Features of the tests of a suite, from their settings, and a power law of the settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix, finite_log
from forerun.data.query import Query
from forerun.models.benchmark_suites.known_suites import KnownSetting
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.limit import Limit

RIDGE = 1.0
"""Ridge penalty on the exponents of standardised settings, in rows."""


@dataclass(frozen=True)
class Settings:
    """The settings of one suite in the training set.

    Attributes:
        ranges: minimum and maximum of each numeric setting.
        choices: categorical setting -> its values, sorted; a value's code is its position.
    """

    ranges: FeatureRange
    choices: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """Settings of n training queries; one that is a text in any of them is categorical."""
        values_of: dict[str, set[float | str]] = {}
        for query in queries:
            for name, value in query.benchmark.settings:
                values_of.setdefault(name, set()).add(value)
        texts = {n for n, values in values_of.items() if any(isinstance(v, str) for v in values)}
        numbers = tuple(sorted(set(values_of) - texts))
        choices = {name: tuple(sorted(str(v) for v in values_of[name])) for name in sorted(texts)}
        return cls(FeatureRange.of(numbers, _numbers(numbers, queries)), choices)

    def known(self) -> tuple[KnownSetting, ...]:
        """All settings with their ranges and values; those that vary are required."""
        ranges = zip(self.ranges.names, self.ranges.low, self.ranges.high, strict=True)
        return (
            *(KnownSetting(n, v, required=len(v) > 1) for n, v in self.choices.items()),
            *(
                KnownSetting(n, (), float(low), float(high), required=low < high)
                for n, low, high in ranges
            ),
        )

    def constants(self) -> dict[str, float | str]:
        """Settings that are the same in all training rows."""
        return {
            setting.name: setting.values[0] if setting.values else setting.low or 0.0
            for setting in self.known()
            if not setting.required
        }

    def matrix(self, queries: Sequence[Query]) -> Matrix:
        """Feature matrix of the boosters, shape (n, features).

        Its columns are the numeric settings, their logarithms, sums and differences of each pair of
        logarithms, and the codes of categorical settings. A setting that is not given is NaN, and
        so is the code of a value outside the training set.
        """
        logs = self.logarithms(queries)
        pairs = list(combinations(logs.T, 2))
        products = [a + b for a, b in pairs]
        ratios = [a - b for a, b in pairs]
        return np.column_stack(
            [_numbers(self.ranges.names, queries), logs, *products, *ratios, *self._codes(queries)]
        )

    def logarithms(self, queries: Sequence[Query]) -> Matrix:
        """Logarithms of the settings that are positive in the training set, (n, settings)."""
        return finite_log(_numbers(self.ranges.names, queries)[:, self.ranges.low > 0.0])

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """One limit per setting that is missing, unknown, or outside the training set."""
        given = query.benchmark.by_name
        names = (*self.ranges.names, *self.choices)
        missing = [f"{name} is not given" for name in names if name not in given]
        unknown = [f"{name} is not known" for name in given if name not in names]
        new = [
            f"{name} is {given[name]!r}, which training did not see"
            for name, values in self.choices.items()
            if name in given and str(given[name]) not in values
        ]
        row = _numbers(self.ranges.names, [query])[0]
        return (*map(Limit, (*missing, *unknown, *new)), *self.ranges.outside(row))

    def _codes(self, queries: Sequence[Query]) -> list[Column]:
        """Codes of each categorical setting, shape (n,); NaN for a value without a code."""
        given = [query.benchmark.by_name for query in queries]
        columns = []
        for name, values in self.choices.items():
            code = {value: float(number) for number, value in enumerate(values)}
            column = [code.get(str(settings.get(name)), np.nan) for settings in given]
            columns.append(np.array(column))
        return columns


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers of the settings, which extrapolates where trees are constant.

    Attributes:
        level: mean of the target's logarithms in the training set.
        middle: mean logarithm of each setting there.
        exponents: one per setting.
    """

    level: float
    middle: tuple[float, ...]
    exponents: tuple[float, ...]

    @classmethod
    def fit(cls, logs: Matrix, target: Column) -> Self:
        """Ridge regression of the target's logarithms on those of the settings.

        Args:
            logs: logarithms of the settings, shape (n, settings); NaN where not given.
            target: logarithms of the metric, shape (n,).
        """
        middle = np.nanmean(logs, axis=0)
        centred = np.nan_to_num(logs - middle)
        scale = centred.std(axis=0)
        # A setting that is constant in the training set has an exponent of 0.
        varies = scale > 1e-9
        exponents = np.zeros(len(middle))
        rows = centred[:, varies] / scale[varies]
        level = float(target.mean())
        inner = rows.T @ rows + RIDGE * np.eye(rows.shape[1])
        exponents[varies] = np.linalg.solve(inner, rows.T @ (target - level)) / scale[varies]
        return cls(level, tuple(middle.tolist()), tuple(exponents.tolist()))

    def predict(self, logs: Matrix) -> Column:
        """Predicted logarithms, shape (n,); a setting that is not given counts as `middle`."""
        # Summed row by row, because a matrix product may differ with the size of the batch.
        terms = np.nan_to_num(logs - np.array(self.middle)) * np.array(self.exponents)
        return np.asarray(self.level + terms.sum(axis=1))


def _numbers(names: Sequence[str], queries: Sequence[Query]) -> Matrix:
    """Numeric settings, shape (n, len(names)); NaN where one is absent or a text."""
    rows = np.full((len(queries), len(names)), np.nan)
    for row, query in enumerate(queries):
        given = query.benchmark.by_name
        for column, name in enumerate(names):
            value = given.get(name)
            if isinstance(value, float | int):
                rows[row, column] = value
    return rows
