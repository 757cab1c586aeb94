"""A Gaussian process over rows that share keys: the same model, device, scenario, submitter, ...

Its covariance is a sum of terms. A term joins rows that agree in some keys, times how near they are
in some numbers. So history answers where there is one (terms with many keys), and what was learnt
of the keys one by one answers elsewhere; how much each term counts is chosen by the marginal
likelihood of rows that teach. Rows far off weigh less: errors are Student t (Neal 1997).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Shape = Literal["one", "linear", "near", "recent", "scale", "host", "work"]
SHEET_FIGURES = 6
FREEDOM = 3.0
"""Degrees of freedom of the errors."""

ROBUST_STEPS = 2
LEARNING_ROWS = 800
LEARNING_STEPS = 50
LEARNING_RATE = 0.15
NOISE = 0.05
JITTER = 1e-6
RECENT_YEARS = 1.0
NEAR = 1.0
"""Length of nearness between spec sheets, in e-folds of their figures."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the covariance.

    Attributes:
        keys: names of the keys that rows must share.
        shape: of what numbers it depends on besides.
        deviation: what it is taken to explain before anything is learnt, in logarithms.
    """

    keys: tuple[str, ...]
    shape: Shape = "one"
    deviation: float = 0.2


@dataclass(frozen=True)
class Rows:
    """n rows as the process sees them.

    Attributes:
        keys: name -> n texts; an empty text is like no other.
        sheet: n rows of logarithms of the device's figures; NaN throughout without a spec sheet.
        numbers: name -> n numbers: `time` in years, `scale` and `host` as logarithms.
    """

    keys: Mapping[str, NDArray[np.str_]]
    sheet: Matrix
    numbers: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.sheet)

    def take(self, rows: NDArray[Any]) -> "Rows":
        """The rows at these positions, or where the mask is True."""
        return Rows(
            {k: v[rows] for k, v in self.keys.items()},
            self.sheet[rows],
            {k: v[rows] for k, v in self.numbers.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists; keys as positions in a list of their texts."""
        keys = {}
        for name, column in self.keys.items():
            texts, codes = np.unique(column, return_inverse=True)
            keys[name] = {"texts": texts.tolist(), "codes": codes.tolist()}
        numbers = {k: v.tolist() for k, v in self.numbers.items()}
        sheets, places = np.unique(self.sheet, axis=0, return_inverse=True)
        plain = [None if np.isnan(row).any() else row.tolist() for row in sheets]
        sheet = {"sheets": plain, "places": places.ravel().tolist()}
        return {"keys": keys, "sheet": sheet, "numbers": numbers}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Rows":
        """The rows that `to_json` wrote."""
        keys = {
            name: np.array(column["texts"], dtype=np.str_)[np.array(column["codes"], dtype=np.intp)]
            for name, column in content["keys"].items()
        }
        numbers = {k: np.array(v, dtype=np.float64) for k, v in content["numbers"].items()}
        known = [row for row in content["sheet"]["sheets"] if row is not None]
        nothing = [float("nan")] * (len(known[0]) if known else SHEET_FIGURES)
        sheets = [nothing if row is None else row for row in content["sheet"]["sheets"]]
        table = np.array(sheets, dtype=np.float64).reshape(-1, len(nothing))
        return cls(keys, table[np.array(content["sheet"]["places"], dtype=np.intp)], numbers)


@dataclass(frozen=True)
class AdditiveCategoricalProcess:
    """A process given the values of n rows.

    Attributes:
        terms: of the covariance, each with the deviation that was learnt.
        noise: deviation of the errors of a row of weight 1.
        shown: the rows.
        level: mean of the values.
        weights: n numbers, covariance solved for the values less the level.
        trust: n weights in the errors; small for rows that are far off.
    """

    terms: tuple[Term, ...]
    noise: float
    shown: Rows
    level: float
    weights: Column
    trust: Column

    @classmethod
    def fit(
        cls,
        rows: Rows,
        values: Column,
        terms: Sequence[Term],
        *,
        noise: float = NOISE,
        learn: bool = True,
        seed: int = 0,
    ) -> Self:
        """The process given n values; how much each term counts is learnt from a sample of them."""
        terms, level = tuple(terms), float(np.median(values))
        if learn:
            order = np.random.default_rng(seed).permutation(len(rows))[:LEARNING_ROWS]
            terms, noise = _learnt(rows.take(order), values[order] - level, terms, noise)
        gram = covariance(rows, rows, terms)
        centred, trust = values - level, np.ones(len(rows))
        for _ in range(ROBUST_STEPS):
            weights = _solved(gram, noise**2 / trust, centred)
            # What a row is off by, given all others and itself: errors = variance x weights.
            errors = noise**2 / trust * weights
            trust = (FREEDOM + 1) / (FREEDOM + (errors / noise) ** 2)
        weights = _solved(gram, noise**2 / trust, centred)
        return cls(terms, noise, rows, level, weights, trust)

    def predict(self, rows: Rows) -> Column:
        """Expected values, shape (n,). A row does not depend on its neighbours."""
        found = np.empty(len(rows))
        for start in range(0, len(rows), 512):
            part = rows.take(np.arange(start, min(start + 512, len(rows))))
            found[start : start + 512] = covariance(part, self.shown, self.terms) @ self.weights
        return self.level + found

    def corrected(self, rows: Rows, missed: Column, own: Sequence[str]) -> Self:
        """A process of what was missed on a few further rows.

        Args:
            rows: k rows.
            missed: k values less the answers.
            own: keys of what those rows are of; terms without any of them stay as they are.
        """
        terms = tuple(term for term in self.terms if set(term.keys) & set(own))
        gram = covariance(rows, rows, terms)
        weights = _solved(gram, np.full(len(rows), self.noise**2), missed)
        trust = np.ones(len(rows))
        return replace(self, terms=terms, shown=rows, level=0.0, weights=weights, trust=trust)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {
            "terms": [[list(t.keys), t.shape, t.deviation] for t in self.terms],
            "noise": self.noise,
            "shown": self.shown.to_json(),
            "level": self.level,
            "weights": self.weights.tolist(),
            "trust": self.trust.tolist(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The process that `to_json` wrote."""
        return cls(
            tuple(Term(tuple(keys), shape, size) for keys, shape, size in content["terms"]),
            content["noise"],
            Rows.from_json(content["shown"]),
            content["level"],
            np.array(content["weights"], dtype=np.float64),
            np.array(content["trust"], dtype=np.float64),
        )


def covariance(one: Rows, other: Rows, terms: Sequence[Term]) -> Matrix:
    """Covariance of n with m rows, shape (n, m)."""
    parts = _Parts(one, other)
    total = np.zeros((len(one), len(other)))
    for term in terms:
        if term.deviation > 0:
            total += term.deviation**2 * parts.of(term)
    return total


class _Parts:
    """Terms of unit deviation between two sets of rows; what several need is computed once."""

    def __init__(self, one: Rows, other: Rows) -> None:
        self._one, self._other = one, other
        self._equal: dict[tuple[str, ...], NDArray[np.bool_]] = {}
        self._shapes: dict[str, Matrix] = {}

    def of(self, term: Term) -> Matrix:
        if term.shape not in self._shapes:
            self._shapes[term.shape] = _shape(term.shape, self._one, self._other)
        shape = self._shapes[term.shape]
        return shape * self._agree(term.keys) if term.keys else shape

    def _agree(self, keys: tuple[str, ...]) -> NDArray[np.bool_]:
        if keys not in self._equal:
            ones = np.ones((len(self._one), len(self._other)), dtype=np.bool_)
            agree = self._agree(keys[:-1]) if len(keys) > 1 else ones
            mine, theirs = self._one.keys[keys[-1]], self._other.keys[keys[-1]]
            texts, codes = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
            named = texts[codes] != ""
            one, other = codes[: len(mine)], codes[len(mine) :]
            same = (one[:, None] == other[None, :]) & named[: len(mine), None]
            self._equal[keys] = agree & same
        return self._equal[keys]


def _shape(shape: Shape, one: Rows, other: Rows) -> Matrix:
    if shape == "one":
        return np.ones((len(one), len(other)))
    if shape in ("linear", "near"):
        known = ~np.isnan(one.sheet[:, :1]) & ~np.isnan(other.sheet[:, 0])
        mine, theirs = np.nan_to_num(one.sheet), np.nan_to_num(other.sheet)
        if shape == "linear":
            return np.asarray(known * (mine @ theirs.T))
        square = (mine**2).sum(1)[:, None] + (theirs**2).sum(1) - 2 * mine @ theirs.T
        return np.asarray(known * np.exp(-np.maximum(square, 0.0) / (2 * NEAR**2)))
    name = "time" if shape == "recent" else shape
    mine, theirs = one.numbers[name][:, None], other.numbers[name][None, :]
    if shape == "recent":
        return np.asarray(np.exp(-np.abs(mine - theirs) / RECENT_YEARS))
    product: Matrix = mine * theirs
    return product if shape == "work" else product + np.exp(-((mine - theirs) ** 2) / 2)


def _learnt(
    rows: Rows, centred: Column, terms: tuple[Term, ...], noise: float
) -> tuple[tuple[Term, ...], float]:
    """Deviations and noise of (locally) greatest marginal likelihood, held by a weak prior."""
    parts = _Parts(rows, rows)
    grams = [parts.of(term).astype(np.float32) for term in terms]
    start = np.log([*(term.deviation for term in terms), noise])
    sizes, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    trust = np.ones(len(rows))
    for step in range(1, LEARNING_STEPS + 1):
        variances = np.exp(2 * sizes)
        gram = sum(v * g for v, g in zip(variances[:-1], grams, strict=True)).astype(np.float64)
        inverse = np.linalg.inv(gram + np.diag(variances[-1] / trust + JITTER))
        weights = inverse @ centred
        errors = variances[-1] / trust * weights
        trust = (FREEDOM + 1) / (FREEDOM + errors**2 / variances[-1])
        slack = np.outer(weights, weights) - inverse
        slope = [v * float(np.vdot(slack, g)) for v, g in zip(variances[:-1], grams, strict=True)]
        slope.append(float(variances[-1] * (np.diag(slack) / trust).sum()))
        gradient = np.array(slope) - (sizes - start)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        fair = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
        sizes = sizes + LEARNING_RATE * fair
    found = np.exp(sizes)
    learnt = [replace(term, deviation=float(d)) for term, d in zip(terms, found[:-1], strict=True)]
    return tuple(learnt), float(found[-1])


def _solved(gram: Matrix, variances: Column, values: Column) -> Column:
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(gram + np.diag(variances + JITTER), lower=True, overwrite_a=True)
    found: Column = cho_solve(factor, values)
    return found
