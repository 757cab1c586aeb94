"""Models the error of a predictor on a new device from groups of measurements there.

The error is mostly constant per execution mode or operator family ("stratum"): `Offsets` estimates
these constants as robust medians under a hierarchical prior. `ErrorProcess` models the error as a
level common to all strata, a level per stratum, and a smooth function of the features. The
variances of these parts and of the noise are unknown, so Gaussian processes with different
variances are weighted by their predictive densities for groups held out one by one. Errors of
networks far from their stratum's offset are clipped first (winsorised), so that one outlier does
not distort all other predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, Positions
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.gaussian_process.regression import (
    Posterior,
    distances,
    log_density,
    matern,
    posterior_weights,
    same,
    without_group,
)

DEVICE_DEVIATION = 0.2
STRATUM_DEVIATION = 0.2
"""Prior standard deviations of the device's level and of the strata, in log units. As they are
equal, half of the error of a single stratum is attributed to the whole device. Errors of whole
networks on RTX 3090 and 4090, each held out, are 0.13 to 0.17; those of NeuSight's operator
families on P4, P100, V100 and T4 are 0.05 to 0.4."""
KNOWN_FACTOR = 0.3
"""Factor on both deviations for a device in the training set."""
DEVIATION_PRIOR, DEVIATION_PRIOR_ROWS = 0.15, 3.0
"""Prior standard deviation of the errors around their stratum's offset, and its weight in rows."""
_MEDIAN_EFFICIENCY = np.pi / 2.0
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Offsets:
    """Offsets of one device in log space.

    A two-level model: the strata's offsets are normally distributed around the device's level, and
    that level around zero. A stratum's offset is the median over its groups (models, operator
    shapes), so that a group with many runs counts once, shrunk according to its standard error.

    Attributes:
        level: offset of strata without measurements.
        strata: stratum -> offset.
        deviation: robust standard deviation of the errors around the offsets.
    """

    level: float
    strata: Mapping[str, float]
    deviation: float

    @classmethod
    def fit(
        cls, errors: Column, strata: Names, groups: Positions, prior_factor: float = 1.0
    ) -> Self:
        """Posterior means of the two-level model.

        Args:
            errors: (n,) log(measured / predicted); with n = 0, all offsets are zero.
            strata: (n,) names of strata.
            groups: (n,) group codes; rows of one group in a stratum count as one.
            prior_factor: factor on the standard deviations of the prior.
        """
        names = np.unique(strata)
        values = [_group_values(errors, groups, strata == name) for name in names]
        medians = np.array([np.median(v) for v in values])
        deviation = _robust_deviation([v - m for v, m in zip(values, medians, strict=True)])
        count = np.array([len(v) for v in values])
        variance = _MEDIAN_EFFICIENCY * deviation**2 / np.maximum(count, 1)
        between = (STRATUM_DEVIATION * prior_factor) ** 2
        weight = 1.0 / (variance + between)
        level = float(weight @ medians) / float(
            weight.sum() + (DEVICE_DEVIATION * prior_factor) ** -2
        )
        shrunk = (medians * between + level * variance) / (between + variance)
        offsets = {str(n): float(s) for n, s in zip(names, shrunk, strict=True)}
        return cls(level, offsets, deviation)

    def at(self, strata: Sequence[str] | Names) -> Column:
        """Offset of each of n strata, shape (n,)."""
        return np.array([self.strata.get(str(s), self.level) for s in strata], dtype=np.float64)


def _group_values(errors: Column, groups: Positions, rows: Mask) -> Column:
    """Median error per group in these rows; the errors themselves if every group has one row."""
    selected, of_group = errors[rows], groups[rows]
    codes, count = np.unique(of_group, return_counts=True)
    if count.max(initial=1) == 1:
        return selected
    return np.array([np.median(selected[of_group == code]) for code in codes])


def _robust_deviation(residuals: Sequence[Column]) -> float:
    """Standard deviation from the median absolute residual, shrunk towards `DEVIATION_PRIOR`."""
    if not residuals:
        return DEVIATION_PRIOR
    pooled = np.concatenate(residuals)
    freedom = max(0, len(pooled) - len(residuals))
    observed = (_MAD_TO_DEVIATION * float(np.median(np.abs(pooled)))) ** 2 * freedom
    prior = DEVIATION_PRIOR**2 * DEVIATION_PRIOR_ROWS
    return float(np.sqrt((prior + observed) / (DEVIATION_PRIOR_ROWS + freedom)))


NEGLIGIBLE = 0.01
"""Weight relative to the largest below which an expert is dropped."""
WINSOR = 3.0
"""Standard deviations from the offset at which errors of networks are clipped, chosen on the same
devices as the experts. Errors of operators depend on their sizes and are not clipped."""
SAME_GROUP = 0.5
"""Share of the noise variance common to the rows of a group in one stratum."""
ACROSS_STRATA = 0.5
"""Share of the smooth parts' variance common to all strata, if features are comparable."""


class Expert(NamedTuple):
    """Hyperparameters of one Gaussian process: variances of the parts of the error.

    Attributes:
        weight: prior weight in the mixture.
        noise: noise variance of a row.
        level: variance of the level, half of it common to the device and half per stratum.
        trend: variance of a linear function of the features.
        smooth, length: variance of a Matern 3/2 process, and its length scale in units of the
            square root of the number of features.
        centred: whether the process models residuals from the offsets rather than the error.
    """

    weight: float
    noise: float
    level: float
    trend: float = 0.0
    smooth: float = 0.0
    length: float = 1.0
    centred: bool = False


_NOISES = (0.0001, 0.0015, 0.01, 0.1)
_CENTRED_NOISES = (0.001, 0.004, 0.012, 0.04)
_SHAPES = (
    (0.05, 0.0, 1.0),
    *((t, s, length) for t in (0.0, 0.05) for s in (0.02, 0.08) for length in (2 / 3, 5 / 3)),
)
_CONSTANT = tuple(Expert(1 / 8, n, level) for n in _NOISES for level in (0.001, 0.04))
_WHOLE = tuple(Expert(1 / 36, n, 0.04, *shape) for n in _NOISES for shape in _SHAPES)
_CENTRED = tuple(
    Expert(1 / 36, n, 0.01, *shape, True) for n in _CENTRED_NOISES for shape in _SHAPES
)


def _weighted(experts: Sequence[Expert], weight: float) -> tuple[Expert, ...]:
    return tuple(e._replace(weight=e.weight * weight) for e in experts)


OPERATOR_EXPERTS = (*_weighted(_CONSTANT, 0.3), *_weighted(_WHOLE, 0.7))
"""Experts for operator families; chosen on NeuSight's operators with P4, P100, V100 and T4 held out
in turn."""
NETWORK_EXPERTS = (*_weighted(_WHOLE, 0.2), *_weighted(_CENTRED, 0.8))
"""Experts for whole networks; chosen with RTX 3090 and RTX 4090 held out in turn."""


@dataclass(frozen=True)
class Gram:
    """Covariances between n points and the k rows of a support set, by part of the error.

    Attributes:
        same: (n, k) 1 where both have the same stratum, else 0.
        points, rows: (n, d) and (k, d) features.
        shared: share of the smooth parts' variance common to all strata.
        smooth: cache of Matern correlations by length scale.
    """

    same: Matrix
    points: Matrix
    rows: Matrix
    shared: float
    smooth: dict[float, Matrix] = field(default_factory=dict)

    @classmethod
    def between(cls, strata: Names, features: Matrix, rows: SupportSet) -> Self:
        """The parts between n points and a support set."""
        shared = ACROSS_STRATA if rows.comparable else 0.0
        return cls(same(strata, rows.strata).astype(np.float64), features, rows.features, shared)

    def covariance(self, expert: Expert) -> Matrix:
        """Noise-free covariance under one expert, shape (n, k)."""
        covariance = 0.5 * expert.level * (1.0 + self.same)
        mix = self.shared + (1.0 - self.shared) * self.same
        if expert.trend:
            covariance = covariance + expert.trend * mix * self._product
        if expert.smooth:
            covariance = covariance + expert.smooth * mix * self._matern(expert.length)
        return np.asarray(covariance)

    @cached_property
    def _product(self) -> Matrix:
        return np.asarray(self.points @ self.rows.T / max(1, self.rows.shape[1]))

    @cached_property
    def _distances(self) -> Matrix:
        return distances(self.points, self.rows)

    def _matern(self, length: float) -> Matrix:
        if length not in self.smooth:
            scale = length * np.sqrt(max(1, self.rows.shape[1]))
            self.smooth[length] = matern(self._distances / scale, 1.5)
        return self.smooth[length]


@dataclass(frozen=True)
class ErrorProcess:
    """Mixture of experts conditioned on a support set.

    Attributes:
        rows: support set of k rows.
        experts: experts with non-negligible weight.
        weights: their weights, which add up to 1.
        posteriors: posterior of each expert.
        offsets: offsets to which centred experts are added.
    """

    rows: SupportSet
    experts: Sequence[Expert]
    weights: Column
    posteriors: Sequence[Posterior]
    offsets: Offsets

    @classmethod
    def fit(
        cls, rows: SupportSet, experts: Sequence[Expert], weights: Column, offsets: Offsets
    ) -> Self:
        """Posteriors of the experts with non-negligible weight."""
        kept = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
        gram = Gram.between(rows.strata, rows.features, rows)
        chosen = [experts[int(i)] for i in kept]
        targets = _targets(rows, offsets)
        posteriors = [
            Posterior.of(_covariance(gram, rows, e), _own_noise(e), targets[e.centred])
            for e in chosen
        ]
        return cls(rows, chosen, weights[kept] / weights[kept].sum(), posteriors, offsets)

    def at(self, strata: Names, features: Matrix) -> Column:
        """Posterior mean of the error at n points, shape (n,)."""
        gram = Gram.between(strata, features, self.rows)
        base = self.offsets.at(strata)
        mean = np.zeros(len(features))
        for expert, weight, posterior in zip(
            self.experts, self.weights, self.posteriors, strict=True
        ):
            mean_of_expert = posterior.mean(gram.covariance(expert))
            mean += weight * (mean_of_expert + base if expert.centred else mean_of_expert)
        return mean


@dataclass(frozen=True)
class LeftOut:
    """Leave-one-group-out residuals of k rows.

    Attributes:
        by_offset: (k,) residuals from offsets fitted to the other groups.
        by_process: (k,) residuals from the mixture given the other groups.
        weights: (e,) posterior weights of the experts, from their densities for these rows.
    """

    by_offset: Column
    by_process: Column
    weights: Column

    def blend(self, share: float) -> Column:
        """Residuals with weight `share` on the process and the rest on the offsets; (k,)."""
        return np.asarray((1.0 - share) * self.by_offset + share * self.by_process)


def leave_groups_out(
    rows: SupportSet, experts: Sequence[Expert], prior_factor: float = 1.0
) -> LeftOut:
    """Residuals of each group given all others; the offsets are refitted without it too.

    Args:
        rows: support set of k rows.
        experts: e experts with fixed hyperparameters; only their weights depend on all groups.
        prior_factor: as in `Offsets.fit`.
    """
    gram = Gram.between(rows.strata, rows.features, rows)
    inverses = np.stack(
        [Posterior.of(_covariance(gram, rows, e), _own_noise(e), rows.errors).inverse
         for e in experts]
    )  # fmt: skip
    centred = np.array([e.centred for e in experts])
    by_offset = np.empty(len(rows))
    left = np.empty((len(experts), len(rows)))
    score = np.log([e.weight for e in experts])
    for group in np.unique(rows.groups):
        held = rows.groups == group
        others = rows.take(np.flatnonzero(~held))
        offsets = Offsets.fit(others.errors, others.strata, others.groups, prior_factor)
        by_offset[held] = rows.errors[held] - offsets.at(rows.strata[held])
        plain, clipped = _targets(rows, offsets)
        targets = np.where(centred[:, None], clipped, plain)
        means, covariances = without_group(inverses, held, targets)
        left[:, held] = np.where(centred[:, None], by_offset[held], rows.errors[held]) - means
        # Each group has the same weight, regardless of its number of rows.
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        score += log_density(left[:, held], variances).mean(axis=1)
    weights = posterior_weights(score)
    return LeftOut(by_offset, weights @ left, weights)


def _targets(rows: SupportSet, offsets: Offsets) -> tuple[Column, Column]:
    """Clipped errors, and their residuals from the offsets, each (k,)."""
    base = offsets.at(rows.strata)
    reach = WINSOR * offsets.deviation if rows.comparable else np.inf
    clipped = np.clip(rows.errors - base, -reach, reach)
    return clipped + base, clipped


def _covariance(gram: Gram, rows: SupportSet, expert: Expert) -> Matrix:
    """Covariance of the support rows under one expert, including noise common to groups."""
    group = gram.same * same(rows.groups, rows.groups)
    return np.asarray(gram.covariance(expert) + SAME_GROUP * expert.noise * group)


def _own_noise(expert: Expert) -> float:
    """Noise variance that rows of a group do not share."""
    return (1.0 - SAME_GROUP) * expert.noise
