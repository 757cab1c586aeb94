"""A Gaussian process over the designs of one program, fitted to a few measured ones.

The covariance is a constant, a linear term in the booster's prediction, and one Matern 5/2 term for
each of three feature sets: the analytic bounds, the directives themselves, and the outputs of the
trees of a booster trained on other programs. A few rows do not determine hyperparameters, so none
are fitted: settings are drawn from a log-normal prior, and the posteriors under them are averaged
with weights proportional to their marginal likelihoods.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.gaussian_process.posterior import Posterior, distances

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
DRAWS = 192
LEAST_WEIGHT = 0.002
"""Settings with a smaller share of the marginal likelihood are dropped from the average."""
FEATURE_SETS = 3
CENTRE = np.log([0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 0.05])
"""Mean of the prior over the logarithms of the hyperparameters: the variance of the linear term,
three variances, three length scales, and the noise variance, for values standardised to mean 0 and
variance 1. This prior was set once, before any held-out program was evaluated."""
SPREAD = np.array([1.0, 1.0, 1.0, 1.0, 0.6, 0.6, 0.6, 1.2])
"""Standard deviations of the same prior."""


@dataclass(frozen=True)
class DesignInputs:
    """Inputs of the process for n designs of one program.

    Attributes:
        feature_sets: three matrices of n rows: bounds, directives, outputs of the booster's trees.
        answer: predictions of the booster, shape (n,).
    """

    feature_sets: tuple[Matrix, Matrix, Matrix]
    answer: Column

    def take(self, rows: NDArray[np.intp]) -> "DesignInputs":
        """The designs at these positions."""
        bounds, directives, outputs = (features[rows] for features in self.feature_sets)
        return DesignInputs((bounds, directives, outputs), self.answer[rows])


@dataclass(frozen=True)
class DesignGaussianProcess:
    """A mixture of posteriors given the values of k measured designs.

    Attributes:
        support: inputs of the k measured designs.
        scales: divisor of the distances in each feature set.
        level: mean of the values.
        unit: standard deviation of the values, which are standardised by `level` and `unit`.
        settings: hyperparameters of the posteriors that are kept, shape (s, 8), in the order of
            `CENTRE`.
        shares: weights of the posteriors, shape (s,); they add up to 1.
        posteriors: s posteriors.
    """

    support: DesignInputs
    scales: tuple[float, ...]
    level: float
    unit: float
    settings: Matrix
    shares: Column
    posteriors: tuple[Posterior, ...]

    @classmethod
    def of(cls, support: DesignInputs, values: Column, seed: int = 0) -> Self:
        """Fit to k values, which may have any mean and scale.

        Args:
            support: inputs of k designs.
            values: shape (k,).
            seed: of the draws from the prior.
        """
        level, unit = float(values.mean()), max(float(values.std()), 1e-3)
        scales = tuple(_size(features) for features in support.feature_sets)
        scaled = [
            distances(features, features) / scale
            for features, scale in zip(support.feature_sets, scales, strict=True)
        ]
        centred = _centred(support.answer, support.answer)
        settings = np.exp(_draws(seed))
        target = (values - level) / unit
        log_likelihoods, posteriors = [], []
        for setting in settings:
            covariance = _covariance(setting, scaled, np.outer(centred, centred))
            posterior = Posterior.of(covariance, setting[-1], target)
            _, log_determinant = np.linalg.slogdet(posterior.inverse)
            log_likelihoods.append(0.5 * log_determinant - 0.5 * float(target @ posterior.weights))
            posteriors.append(posterior)
        shares = np.exp(np.array(log_likelihoods) - max(log_likelihoods))
        shares /= shares.sum()
        kept = np.flatnonzero(shares >= LEAST_WEIGHT)
        return cls(
            support,
            scales,
            level,
            unit,
            settings[kept],
            shares[kept] / shares[kept].sum(),
            tuple(posteriors[i] for i in kept),
        )

    def predict(self, query: DesignInputs) -> tuple[Column, Column]:
        """Predictive mean and standard deviation of n designs' values, noise included.

        Returns:
            Two arrays of shape (n,).
        """
        scaled = [
            distances(queried, measured) / scale
            for queried, measured, scale in zip(
                query.feature_sets, self.support.feature_sets, self.scales, strict=True
            )
        ]
        queried = _centred(query.answer, self.support.answer)
        measured = _centred(self.support.answer, self.support.answer)
        means, variances = [], []
        for setting, posterior in zip(self.settings, self.posteriors, strict=True):
            cross = _covariance(setting, scaled, np.outer(queried, measured))
            prior = 1.0 + setting[0] * queried**2 + setting[1 : 1 + FEATURE_SETS].sum()
            means.append(posterior.mean(cross))
            variances.append(posterior.variance(cross, prior) + setting[-1])
        mean = self.shares @ np.array(means)
        variance = self.shares @ (np.array(variances) + (np.array(means) - mean) ** 2)
        return self.level + self.unit * mean, self.unit * np.sqrt(variance)


def _draws(seed: int) -> Matrix:
    """Draws from the prior over log hyperparameters, shape (DRAWS, 8); the first is its centre."""
    noise = np.random.default_rng(seed).standard_normal((DRAWS, len(CENTRE)))
    noise[0] = 0.0
    return np.asarray(CENTRE + SPREAD * noise)


def _covariance(setting: Column, scaled: list[Matrix], linear: Matrix) -> Matrix:
    """Covariance under one setting, from scaled distances in each feature set."""
    total = 1.0 + setting[0] * linear
    for number, distance in enumerate(scaled):
        length = setting[1 + FEATURE_SETS + number]
        total = total + setting[1 + number] * _matern(distance / length)
    return np.asarray(total)


def _matern(distance: Matrix) -> Matrix:
    """Matern 5/2 correlation at distances in units of the length scale."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


def _size(features: Matrix) -> float:
    """Root mean square distance of the rows from their mean, at least 1e-6."""
    centred = features - features.mean(axis=0)
    return max(float(np.sqrt((centred**2).sum(axis=1).mean())), 1e-6)


def _centred(answer: Column, support: Column) -> Column:
    """The booster's predictions standardised by those for the support set."""
    return np.asarray((answer - support.mean()) / max(float(support.std()), 0.2))


def spread_rows(matrix: Matrix, count: int, seed: int) -> list[int]:
    """Farthest-point sampling: each row chosen is the farthest from those chosen before it.

    Args:
        matrix: n points, shape (n, columns).
        count: how many to choose; at most n are.
        seed: of the first point and of ties.

    Returns:
        Positions of the chosen rows, in the order of choice.
    """
    random = np.random.default_rng(seed)
    chosen = [int(random.integers(len(matrix)))]
    nearest = np.full(len(matrix), np.inf)
    while len(chosen) < min(count, len(matrix)):
        nearest = np.minimum(nearest, distances(matrix, matrix[chosen[-1:]])[:, 0])
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest + 1e-9 * random.random(len(matrix)))))
    return chosen
