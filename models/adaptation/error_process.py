"""The error of a predictor on a device as a mixture of Gaussian processes, and its held-out errors.

The error on a device is a level common to all strata, a level of each stratum, and a smooth
function of the features. The variances of these parts and of the noise are unknown: experts with
different variances are weighted by their predictive densities for groups that are held out one by
one. Errors of networks far from their stratum's offset are clipped first (winsorised), so that one
outlier does not distort the predictions for all others. Intervals follow from the errors on the
held-out groups, of which there are few.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, Positions
from forerun.data.level import HALF_WIDTH
from forerun.models.adaptation.shrunk_scalar import Offsets
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.conformal import group_weights, student_quantile
from forerun.models.gaussian_process.regression import (
    Posterior,
    distances,
    log_density,
    matern,
    posterior_weights,
    same,
    without_group,
)

PRIOR_DEVIATION, PRIOR_GROUPS = 0.1, 3.0
"""Prior standard deviation of the errors in log units, and its weight in groups: residuals of
networks from the offsets on RTX 3090 and RTX 4090 have deviations of 0.09 to 0.15."""
STRATUM_GROUPS = 4.0
"""Pseudo-observations, in groups, that shrink a stratum's variance to the pooled one."""
CLIP = 6.0
"""Median absolute errors, scaled to a standard deviation, at which errors are clipped."""
SELECTION = 1.12
"""Factor on deviations, because the weights of the experts and of the process were selected on the
same errors. With it, 9 of 10 rows of unmeasured families are covered on RTX 3090 and RTX 4090."""
MOST_WIDENED = 20.0
"""Largest factor on a deviation away from the support set; beyond it the deviation is infinite. The
interval of an unseen device is narrower anyway, and the exponential must not overflow."""
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Errors on k rows, each of a fit without the row's group.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: (k,) names of strata.
        groups: (k,) codes of groups.
        keys: (k,) names of groups; empty strings if none were given.
        inside: (k,) whether the interval calibrated on the other groups covers the row.
    """

    errors: Column
    strata: Names
    groups: Positions
    keys: Names
    inside: Mask

    @property
    def coverage(self) -> float:
        """Share of rows inside their 90 % interval, with equal weight for every group."""
        return float(np.average(self.inside, weights=group_weights(self.groups)))

    @property
    def mape(self) -> float:
        """Mean absolute percentage error in percent, with equal weight for every group."""
        percent = 100.0 * np.abs(np.expm1(-self.errors))
        return float(np.average(percent, weights=group_weights(self.groups)))

    @property
    def count(self) -> int:
        """Number of groups, each of which was held out once."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class GroupDeviations:
    """Standard deviations of leave-one-group-out errors by stratum, shrunk to the pooled one.

    Attributes:
        squares: stratum -> code of a group -> mean squared error.
    """

    squares: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, errors: Column, strata: Names, groups: Positions) -> Self:
        """The deviations of k leave-one-group-out errors.

        Args:
            errors: (k,) log(measured / predicted).
            strata: (k,) names of strata.
            groups: (k,) codes of groups.
        """
        squared = errors**2
        squares: dict[str, dict[int, float]] = {}
        for name in np.unique(strata):
            rows = strata == name
            limit = CLIP * _MAD_TO_DEVIATION * float(np.median(np.abs(errors[rows])))
            clipped = np.minimum(squared, max(limit, PRIOR_DEVIATION) ** 2)
            squares[str(name)] = {
                int(g): float(clipped[rows & (groups == g)].mean()) for g in np.unique(groups[rows])
            }
        return cls(squares)

    @property
    def pooled(self) -> float:
        """Pooled standard deviation over all strata."""
        return float(np.sqrt(self._pooled_square(None)))

    def deviation(self, strata: Names, nearest: Column) -> Column:
        """Standard deviation that times `HALF_WIDTH` is the half-width of an interval, shape (n,).

        It is infinite in a stratum with fewer than two groups. From one to two times the reach of
        the support set it grows, and beyond it is infinite.

        Args:
            strata: n names of strata.
            nearest: (n,) distance to the support set in units of the reach of the support set.
        """
        by_stratum = {str(name): self._deviation(str(name)) for name in np.unique(strata)}
        own = np.array([by_stratum[str(name)] for name in strata], dtype=np.float64)
        closeness = np.clip(2.0 - nearest, 0.0, 1.0)
        near = closeness * MOST_WIDENED > 1.0
        return np.where(near, own / np.where(near, closeness, 1.0), np.inf)

    def held_out(self, errors: Column, rows: SupportSet) -> HeldOutErrors:
        """The errors, and whether intervals calibrated on the other groups cover them.

        Args:
            errors: (k,) leave-one-group-out errors.
            rows: support set of k rows that they belong to.
        """
        half_width = np.array(
            [
                HALF_WIDTH * self._deviation(str(name), int(group))
                for name, group in zip(rows.strata, rows.groups, strict=True)
            ]
        )
        inside = np.abs(errors) <= half_width
        return HeldOutErrors(errors, rows.strata, rows.groups, rows.keys, inside)

    def _pooled_square(self, without: int | None) -> float:
        """Pooled variance with its prior; `without` leaves out the group of that code."""
        values = [s for by in self.squares.values() for g, s in by.items() if g != without]
        groups = {g for by in self.squares.values() for g in by if g != without}
        mean = float(np.mean(values)) if values else 0.0
        total = PRIOR_GROUPS * PRIOR_DEVIATION**2 + len(groups) * mean
        return total / (PRIOR_GROUPS + len(groups))

    def _deviation(self, stratum: str, without: int | None = None) -> float:
        """Deviation of a new row of a stratum; `without` leaves out the group of that code."""
        values = [s for g, s in self.squares.get(stratum, {}).items() if g != without]
        count = len(values)
        if count < 2 - (without is not None):
            return np.inf
        prior = STRATUM_GROUPS * self._pooled_square(without)
        square = (prior + sum(values)) / (STRATUM_GROUPS + count)
        quantile = float(student_quantile(STRATUM_GROUPS + count, 0.9))
        return float(SELECTION * quantile / HALF_WIDTH * np.sqrt(square * (1.0 + 1.0 / count)))


NEGLIGIBLE = 0.01
"""Weight relative to the largest, below which an expert is left out."""
WINSOR = 3.0
"""Standard deviations from the offset at which errors of networks are clipped. Errors of operators
depend on sizes and are not clipped. Chosen on the devices that the experts were chosen on."""
SAME_GROUP = 0.5
"""Share of the noise variance that rows of one group in one stratum have in common."""
ACROSS_STRATA = 0.5
"""Share of the variance of smooth parts that strata have in common, if features are comparable."""


class Expert(NamedTuple):
    """Hyperparameters of one Gaussian process: variances of the parts of the error.

    Attributes:
        weight: prior weight in the mixture.
        noise: variance of the noise of a row.
        level: variance of the level, half of it common to the device, half of each stratum.
        trend: variance of a linear function of the features.
        smooth, length: variance of a Matern 3/2 process, and its length scale in units of the
            square root of the number of features.
        centred: whether the process describes residuals from the offsets, not the error itself.
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
    """Covariances of n points with the k rows of a support set, by part of the error.

    Attributes:
        same: (n, k) 1 where both are of one stratum, else 0.
        points, rows: (n, d) and (k, d) features.
        shared: share of the variance of smooth parts that strata have in common.
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
        """Covariance under one expert without noise, shape (n, k)."""
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
    """A mixture of experts given a support set.

    Attributes:
        rows: support set of k rows.
        experts: experts with a weight that is not negligible.
        weights: their weights, which add up to 1.
        posteriors: posterior of each expert.
        offsets: offsets that centred experts are added to.
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
        """Posteriors of the experts whose weight is not negligible."""
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
            own = posterior.mean(gram.covariance(expert))
            mean += weight * (own + base if expert.centred else own)
        return mean


@dataclass(frozen=True)
class LeftOut:
    """Leave-one-group-out residuals of k rows.

    Attributes:
        by_offset: (k,) residuals from the offsets of the other groups.
        by_process: (k,) residuals from the mixture given the other groups.
        weights: (e,) posterior weights of the experts, from their densities for these rows.
    """

    by_offset: Column
    by_process: Column
    weights: Column

    def blend(self, share: float) -> Column:
        """Residuals of predictions with weight `share` of the process, else the offsets; (k,)."""
        return np.asarray((1.0 - share) * self.by_offset + share * self.by_process)


def leave_groups_out(
    rows: SupportSet, experts: Sequence[Expert], prior_factor: float = 1.0
) -> LeftOut:
    """Residuals of each group given all others; offsets are fitted without it as well.

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
        # A group has the same weight however many rows it has.
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
    """Covariance of the support rows under one expert, with the noise that groups share."""
    group = gram.same * same(rows.groups, rows.groups)
    return np.asarray(gram.covariance(expert) + SAME_GROUP * expert.noise * group)


def _own_noise(expert: Expert) -> float:
    """Variance of the noise that rows of a group do not share."""
    return (1.0 - SAME_GROUP) * expert.noise
