"""A Gaussian process over the designs of one program, known from a few of them.

Designs are alike in three ways, each with its own covariance: by the analytic bounds, by the
directives themselves, and by what the trees of a booster taught on other programs make of them. A
linear term follows the booster's answer. How much each way counts is not fitted to the few rows:
settings are drawn from what is plausible and averaged by their marginal likelihood.
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
WAYS = 3
CENTRE = np.log([0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 0.05])
SPREAD = np.array([1.0, 1.0, 1.0, 1.0, 0.6, 0.6, 0.6, 1.2])
"""Of the settings' logarithms: linear term, three variances, three lengths, noise; for values of
mean 0 and variance 1. Set once, before any held-out program was judged."""


@dataclass(frozen=True)
class Places:
    """n designs of one program as the process sees them.

    Attributes:
        ways: three matrices of n rows: bounds, directives, outputs of the booster's trees.
        answer: n answers of the booster.
    """

    ways: tuple[Matrix, Matrix, Matrix]
    answer: Column

    def take(self, rows: NDArray[np.intp]) -> "Places":
        """The designs at these positions."""
        bounds, directives, outputs = (way[rows] for way in self.ways)
        return Places((bounds, directives, outputs), self.answer[rows])


@dataclass(frozen=True)
class DesignGaussianProcess:
    """A process given the values of k designs.

    Attributes:
        shown: the k designs.
        scales: what distances are divided by, a way each.
        level: mean of the values.
        unit: their deviation, in which settings are meant.
        settings: (s, 8) settings that count.
        shares: (s,) how much each counts; they add up to 1.
        posteriors: s posteriors.
    """

    shown: Places
    scales: tuple[float, ...]
    level: float
    unit: float
    settings: Matrix
    shares: Column
    posteriors: tuple[Posterior, ...]

    @classmethod
    def of(cls, shown: Places, values: Column, seed: int = 0) -> Self:
        """The process given values of mean and size of any kind."""
        level, unit = float(values.mean()), max(float(values.std()), 1e-3)
        scales = tuple(_size(way) for way in shown.ways)
        apart = [distances(w, w) / s for w, s in zip(shown.ways, scales, strict=True)]
        centred = _centred(shown.answer, shown.answer)
        settings = np.exp(_draws(seed))
        wanted = (values - level) / unit
        scores, found = [], []
        for one in settings:
            covariance = _covariance(one, apart, np.outer(centred, centred))
            posterior = Posterior.of(covariance, one[-1], wanted)
            _, log_size = np.linalg.slogdet(posterior.inverse)
            scores.append(0.5 * log_size - 0.5 * float(wanted @ posterior.weights))
            found.append(posterior)
        shares = np.exp(np.array(scores) - max(scores))
        shares /= shares.sum()
        kept = np.flatnonzero(shares >= LEAST_WEIGHT)
        return cls(
            shown,
            scales,
            level,
            unit,
            settings[kept],
            shares[kept] / shares[kept].sum(),
            tuple(found[i] for i in kept),
        )

    def foresee(self, asked: Places) -> tuple[Column, Column]:
        """Mean and deviation of n designs' values, shapes (n,); noise is included."""
        apart = [
            distances(theirs, mine) / scale
            for theirs, mine, scale in zip(asked.ways, self.shown.ways, self.scales, strict=True)
        ]
        theirs = _centred(asked.answer, self.shown.answer)
        mine = _centred(self.shown.answer, self.shown.answer)
        means, variances = [], []
        for one, posterior in zip(self.settings, self.posteriors, strict=True):
            cross = _covariance(one, apart, np.outer(theirs, mine))
            prior = 1.0 + one[0] * theirs**2 + one[1 : 1 + WAYS].sum()
            means.append(posterior.mean(cross))
            variances.append(posterior.variance(cross, prior) + one[-1])
        mean = self.shares @ np.array(means)
        spread = self.shares @ (np.array(variances) + (np.array(means) - mean) ** 2)
        return self.level + self.unit * mean, self.unit * np.sqrt(spread)


def _draws(seed: int) -> Matrix:
    """Logarithms of settings; the first is the centre."""
    noise = np.random.default_rng(seed).standard_normal((DRAWS, len(CENTRE)))
    noise[0] = 0.0
    return np.asarray(CENTRE + SPREAD * noise)


def _covariance(setting: Column, apart: list[Matrix], linear: Matrix) -> Matrix:
    total = 1.0 + setting[0] * linear
    for way, distance in enumerate(apart):
        total = total + setting[1 + way] * _matern(distance / setting[1 + WAYS + way])
    return np.asarray(total)


def _matern(distance: Matrix) -> Matrix:
    """Matern 5/2 correlation."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


def _size(way: Matrix) -> float:
    """Root mean square distance of rows from their mean, at least a little."""
    return max(float(np.sqrt(((way - way.mean(axis=0)) ** 2).sum(axis=1).mean())), 1e-6)


def _centred(answer: Column, shown: Column) -> Column:
    return np.asarray((answer - shown.mean()) / max(float(shown.std()), 0.2))


def spread_rows(places: Matrix, count: int, seed: int) -> list[int]:
    """Rows that lie far from each other: each next one is farthest from those before it."""
    random = np.random.default_rng(seed)
    chosen = [int(random.integers(len(places)))]
    nearest = np.full(len(places), np.inf)
    while len(chosen) < min(count, len(places)):
        nearest = np.minimum(nearest, distances(places, places[chosen[-1:]])[:, 0])
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest + 1e-9 * random.random(len(places)))))
    return chosen
