"""A Gaussian process over the designs of one program, fitted to a few measured ones.

The covariance is a constant, a linear term in the booster's prediction, and one Matern 5/2 term for
each of three feature sets: the analytical bounds, the directives themselves, and the tree outputs
of
a booster trained on other programs. A few rows do not determine hyperparameters, so none are
fitted: settings are drawn from a log-normal prior, and their posteriors are averaged with weights
proportional to their marginal likelihoods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.program import ProgramGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Design
from forerun.models.gaussian_process.regression import (
    Posterior,
    combine,
    distances,
    matern,
    posterior_weights,
)

DRAWS = 192
LEAST_WEIGHT = 0.002
"""Share of the marginal likelihood below which settings are dropped from the average."""
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


@dataclass(frozen=True)
class DesignGaussianProcess:
    """A mixture of posteriors given the values of k measured designs.

    Attributes:
        support: inputs of the k measured designs.
        level: mean of the values.
        unit: standard deviation of the values, which are standardised by `level` and `unit`.
        settings: hyperparameters of the posteriors that are kept, shape (s, 8), in the order of
            `CENTRE`.
        shares: weights of the posteriors, shape (s,); they add up to 1.
        posteriors: s posteriors.
    """

    support: DesignInputs
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
        settings, covariances = np.exp(_draws(seed)), _Covariances.between(support, support)
        posteriors = [
            Posterior.of(covariances.under(setting), setting[-1], (values - level) / unit)
            for setting in settings
        ]
        shares = posterior_weights(np.array([p.log_likelihood for p in posteriors]))
        kept = np.flatnonzero(shares >= LEAST_WEIGHT)
        return cls(
            support,
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
        covariances = _Covariances.between(query, self.support)
        queried = _centred(query.answer, self.support.answer)
        means, variances = [], []
        for setting, posterior in zip(self.settings, self.posteriors, strict=True):
            cross = covariances.under(setting)
            prior = 1.0 + setting[0] * queried**2 + setting[1 : 1 + FEATURE_SETS].sum()
            means.append(posterior.mean(cross))
            variances.append(posterior.variance(cross, prior) + setting[-1])
        mean, variance = combine(self.shares, np.array(means), np.array(variances))
        return self.level + self.unit * mean, self.unit * np.sqrt(variance)


class _Covariances(NamedTuple):
    """Covariance terms between n designs and a support set of k.

    Attributes:
        linear: products of the booster's standardised predictions, shape (n, k).
        scaled: distances in each feature set, relative to its size in the support set, (n, k).
    """

    linear: Matrix
    scaled: tuple[Matrix, ...]

    @classmethod
    def between(cls, query: DesignInputs, support: DesignInputs) -> Self:
        queried, measured = (_centred(x.answer, support.answer) for x in (query, support))
        pairs = zip(query.feature_sets, support.feature_sets, strict=True)
        scaled = tuple(distances(one, other) / _size(other) for one, other in pairs)
        return cls(np.outer(queried, measured), scaled)

    def under(self, setting: Column) -> Matrix:
        """Covariance under one setting, without noise, shape (n, k)."""
        total = 1.0 + setting[0] * self.linear
        lengths = setting[1 + FEATURE_SETS :]
        for variance, distance, length in zip(setting[1:], self.scaled, lengths, strict=False):
            total += variance * matern(distance / length, 2.5)
        return np.asarray(total)


def _draws(seed: int) -> Matrix:
    """Draws from the prior over log hyperparameters, shape (DRAWS, 8); the first is its centre."""
    noise = np.random.default_rng(seed).standard_normal((DRAWS, len(CENTRE)))
    noise[0] = 0.0
    return np.asarray(CENTRE + SPREAD * noise)


def _size(features: Matrix) -> float:
    """Root mean square distance of the rows from their mean, at least 1e-6."""
    centred = features - features.mean(axis=0)
    return max(float(np.sqrt((centred**2).sum(axis=1).mean())), 1e-6)


def _centred(answer: Column, support: Column) -> Column:
    """The booster's predictions standardised by those for the support set."""
    return np.asarray((answer - support.mean()) / max(float(support.std()), 0.2))


@dataclass(frozen=True)
class SupportDesigns:
    """Measured designs of one program, synthesised by one version of the tool.

    Attributes:
        program: the program, which all designs share.
        device: the device of all designs.
        software: the tool.
        directives: names and values of the directives of each of the k designs.
        values: metric -> k values, NaN where not measured.
    """

    program: ProgramGraph
    device: Device
    software: Software
    directives: tuple[tuple[tuple[str, str], ...], ...]
    values: Mapping[str, Column]

    @classmethod
    def of(cls, queries: Sequence[Query], values: Mapping[str, Column]) -> Self:
        """The designs of k queries with the same program, device and tool."""
        first, directives = queries[0], tuple(query.design.directives for query in queries)
        return cls(first.design.program, first.device, first.software, directives, values)

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """The k designs as queries."""
        designs = (Design(self.program, directives) for directives in self.directives)
        return tuple(Query(design, self.device, self.software) for design in designs)
