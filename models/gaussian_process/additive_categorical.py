"""Gaussian process regression on categorical keys: model, device, scenario, submitter and others.

The covariance is a sum of terms. Each term is an indicator that two rows agree in some keys, times
a covariance of some of their numbers. Where the same combination of keys was measured, terms with
many keys dominate the prediction; elsewhere terms with few keys do. The standard deviation of each
term is a maximum a posteriori estimate from the marginal likelihood of the training rows. Errors
follow a Student t distribution (Neal 1997), so outliers weigh less.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np

from forerun.data.columns import Columns
from forerun.data.shapes import Bool, Float64, Int, Text
from forerun.models.gaussian_process.regression import (
    distances,
    matern,
    mean_weights,
    same,
    squared_exponential,
)

Shape = Literal["one", "linear", "near", "recent", "scale", "host", "work"]
DEGREES_OF_FREEDOM = 3.0
"""Degrees of freedom of the Student t distribution of the errors."""

ROBUST_STEPS = 2
"""Iterations of expectation maximisation for the weights of the training rows."""
LEARNING_ROWS = 800
"""Maximum number of training rows for estimating hyperparameters."""
LEARNING_STEPS = 50
"""Steps of Adam (Kingma and Ba 2015) on the log posterior of the hyperparameters."""
LEARNING_RATE = 0.15
NOISE = 0.05
JITTER = 1e-6
RECENT_YEARS = 1.0
"""Length scale of the exponential covariance of dates, in years."""
NEAR = 1.0
"""Length scale of the squared exponential covariance of spec sheets, in log units of a figure."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the covariance.

    Attributes:
        keys: names of the keys in which two rows must agree; otherwise the term is 0.
        shape: covariance of the rows' numbers; `one` is a constant.
        deviation: prior standard deviation of the term, in log units of the values.
    """

    keys: tuple[str, ...]
    shape: Shape = "one"
    deviation: float = 0.2


@dataclass(frozen=True)
class KeyedRows(Columns):
    """Inputs of the process for n rows.

    Attributes:
        keys: name -> n texts; an empty text equals no other, not even another empty one.
        sheet: (n, figures) logarithms of each device's spec sheet figures; a row of NaN for a
            device without a spec sheet.
        numbers: name -> n numbers: `time` in years, `scale` and `host` as logarithms.
    """

    keys: Mapping[str, Text[np.ndarray, " n"]]
    sheet: Float64[np.ndarray, "n figures"]
    numbers: Mapping[str, Float64[np.ndarray, " n"]]

    def __len__(self) -> int:
        return len(self.sheet)

    @cached_property
    def codes(self) -> Mapping[str, tuple[Text[np.ndarray, " _texts"], Int[np.ndarray, " n"]]]:
        """Name -> the sorted distinct texts of a key, and each row's position among them.

        Cached, because the training rows are compared with every query.
        """
        return {name: np.unique(texts, return_inverse=True) for name, texts in self.keys.items()}

    @cached_property
    def figures(self) -> Float64[np.ndarray, "n figures"]:
        """`sheet` with NaN replaced by 0."""
        return np.asarray(np.nan_to_num(self.sheet))


@dataclass(frozen=True)
class AdditiveCategoricalProcess:
    """Posterior of the process, given the values of n training rows.

    Attributes:
        terms: terms of the covariance, each with its estimated standard deviation.
        noise: standard deviation of the error of a row whose robust weight is 1.
        rows: the n training rows.
        centre: prior mean: the median of the training values.
        weights: (n,) solution of `(covariance + noise) @ weights = values - centre`.
        robust_weights: (n,) precision of each row's error relative to `noise`; small for outliers.
    """

    terms: tuple[Term, ...]
    noise: float
    rows: KeyedRows
    centre: float
    weights: Float64[np.ndarray, " n"]
    robust_weights: Float64[np.ndarray, " n"]

    @classmethod
    def fit(
        cls,
        rows: KeyedRows,
        values: Float64[np.ndarray, " n"],
        terms: Sequence[Term],
        *,
        noise: float = NOISE,
        learn: bool = True,
        seed: int = 0,
    ) -> Self:
        """The posterior given n values.

        Args:
            rows: n training rows.
            values: (n,) values, such as logarithms of a rate.
            terms: terms of the covariance with their prior standard deviations.
            noise: prior standard deviation of the errors.
            learn: whether to estimate the standard deviations, from at most `LEARNING_ROWS` rows;
                otherwise those of the prior are used.
            seed: selects these rows.
        """
        terms, centre = tuple(terms), float(np.median(values))
        if learn:
            order = np.random.default_rng(seed).permutation(len(rows))[:LEARNING_ROWS]
            terms, noise = _map_estimate(rows.take(order), values[order] - centre, terms, noise)
        gram = covariance(rows, rows, terms)
        centred, robust_weights = values - centre, np.ones(len(rows))
        for _ in range(ROBUST_STEPS):
            weights = mean_weights(gram, noise**2 / robust_weights + JITTER, centred)
            robust_weights = _precisions(noise / robust_weights * weights)
        weights = mean_weights(gram, noise**2 / robust_weights + JITTER, centred)
        return cls(terms, noise, rows, centre, weights, robust_weights)

    def predict(self, rows: KeyedRows) -> Float64[np.ndarray, " n"]:
        """Posterior means, shape (n,), independent of the other rows."""
        deviations = np.empty(len(rows))
        for start in range(0, len(rows), 512):
            part = rows.take(np.arange(start, min(start + 512, len(rows))))
            cross = covariance(part, self.rows, self.terms)
            deviations[start : start + 512] = cross @ self.weights
        return self.centre + deviations

    def corrected(
        self, rows: KeyedRows, residuals: Float64[np.ndarray, " k"], identifying: Sequence[str]
    ) -> Self:
        """A process over the residuals of k support rows, to be added to the predictions.

        Args:
            rows: k support rows.
            residuals: (k,) measured minus predicted values.
            identifying: keys that identify the support rows; only terms with at least one of them
                are used.
        """
        terms = tuple(term for term in self.terms if set(term.keys) & set(identifying))
        weights = mean_weights(covariance(rows, rows, terms), self.noise**2 + JITTER, residuals)
        equal = np.ones(len(rows))
        return replace(
            self, terms=terms, rows=rows, centre=0.0, weights=weights, robust_weights=equal
        )


def covariance(
    one: KeyedRows, other: KeyedRows, terms: Sequence[Term]
) -> Float64[np.ndarray, "n m"]:
    """Covariance between n and m rows, shape (n, m)."""
    units = _UnitCovariances(one, other)
    total = np.zeros((len(one), len(other)))
    for term in terms:
        if term.deviation > 0:
            total += term.deviation**2 * units.of(term)
    return total


class _UnitCovariances:
    """Terms with standard deviation 1 between two sets of rows, with shared factors cached."""

    def __init__(self, one: KeyedRows, other: KeyedRows) -> None:
        self._one, self._other = one, other
        self._equal: dict[tuple[str, ...], Bool[np.ndarray, "n m"]] = {}
        self._shapes: dict[Shape, Float64[np.ndarray, "n m"]] = {}

    def of(self, term: Term) -> Float64[np.ndarray, "n m"]:
        if term.shape not in self._shapes:
            self._shapes[term.shape] = _shape(term.shape, self._one, self._other)
        shape = self._shapes[term.shape]
        return shape * self._agree(term.keys) if term.keys else shape

    def _agree(self, keys: tuple[str, ...]) -> Bool[np.ndarray, "n m"]:
        if keys not in self._equal:
            texts, (known, others) = self._one.keys[keys[-1]], self._other.codes[keys[-1]]
            places = np.minimum(np.searchsorted(known, texts), len(known) - 1)
            codes = np.where((known[places] == texts) & (texts != ""), places, -1)
            agree = same(codes, others)
            self._equal[keys] = agree & self._agree(keys[:-1]) if len(keys) > 1 else agree
        return self._equal[keys]


def _shape(shape: Shape, one: KeyedRows, other: KeyedRows) -> Float64[np.ndarray, "n m"]:
    if shape == "one":
        return np.ones((len(one), len(other)))
    if shape in ("linear", "near"):
        known = ~np.isnan(one.sheet[:, :1]) & ~np.isnan(other.sheet[:, 0])
        left, right = one.figures, other.figures
        near = left @ right.T if shape == "linear" else squared_exponential(left, right, NEAR)
        return np.asarray(known * near)
    name = "time" if shape == "recent" else shape
    left, right = one.numbers[name][:, None], other.numbers[name][:, None]
    if shape == "recent":
        return matern(distances(left, right) / RECENT_YEARS, 0.5)
    product: Float64[np.ndarray, "n m"] = left * right.T
    return product if shape == "work" else product + squared_exponential(left, right)


def _precisions(errors: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Expected precisions of Student t errors in units of the noise, shape (n,).

    The residual of a training row is the variance of its noise times its weight in the posterior.
    """
    return np.asarray((DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + errors**2))


def _map_estimate(
    rows: KeyedRows, centred: Float64[np.ndarray, " n"], terms: tuple[Term, ...], noise: float
) -> tuple[tuple[Term, ...], float]:
    """Maximum a posteriori estimate of the standard deviations of the terms and of the noise.

    The logarithm of each has a normal prior of standard deviation 1 around its initial value. Adam
    maximises the log posterior; the robust weights are updated at each step.
    """
    units = _UnitCovariances(rows, rows)
    grams = [units.of(term).astype(np.float32) for term in terms]
    start = np.log([*(term.deviation for term in terms), noise])
    log_deviations, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    robust_weights = np.ones(len(rows))
    for step in range(1, LEARNING_STEPS + 1):
        variances = np.exp(2 * log_deviations)
        gram = sum(v * g for v, g in zip(variances[:-1], grams, strict=True)).astype(np.float64)
        inverse = np.linalg.inv(gram + np.diag(variances[-1] / robust_weights + JITTER))
        weights = inverse @ centred
        robust_weights = _precisions(np.sqrt(variances[-1]) / robust_weights * weights)
        # Gradient of the log marginal likelihood: Rasmussen and Williams 2006, equation 5.9.
        inner = np.outer(weights, weights) - inverse
        slope = [v * float(np.vdot(inner, g)) for v, g in zip(variances[:-1], grams, strict=True)]
        slope.append(float(variances[-1] * (np.diag(inner) / robust_weights).sum()))
        gradient = np.array(slope) - (log_deviations - start)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        update = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
        log_deviations = log_deviations + LEARNING_RATE * update
    deviations = np.exp(log_deviations)
    fitted = [
        replace(term, deviation=float(deviation))
        for term, deviation in zip(terms, deviations[:-1], strict=True)
    ]
    return tuple(fitted), float(deviations[-1])
