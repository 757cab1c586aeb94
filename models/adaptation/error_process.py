"""Gaussian processes over a predictor's error, mixed by how well they predict held-out groups.

The error of a device is a level that all its strata share, one of each stratum, and a smooth
function of the features. How strong each part is, and how noisy the rows, is not known beforehand:
experts with different answers are weighted by their predictive density for groups left out one by
one. Networks far off their stratum's offset are pulled in first, as one failure must
not bend the answers for all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.adaptation.expert_weights import log_density
from forerun.models.adaptation.offsets import Offsets
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.gaussian_process.posterior import Posterior, matern, without_group

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Names = NDArray[np.str_]

NEGLIGIBLE = 0.01
"""Weight, relative to the best expert's, below which an expert is not asked."""
WINSOR = 3.0
"""Spreads off the offset at which errors of networks are clipped; those of operators, which follow
their sizes, are not (chosen on the devices that the experts were chosen on)."""
SAME_GROUP = 0.5
"""Share of the noise that rows of one group in one stratum have in common."""
ACROSS_STRATA = 0.5
"""Share of the smooth parts that strata have in common, where their features are comparable."""


class Expert(NamedTuple):
    """Variances of the parts of the error.

    Attributes:
        weight: before any row.
        noise: of one row.
        level: half of the device, half of the stratum.
        trend: of a linear function of the features.
        smooth, length: of a Matern 3/2 process, and its length in units of sqrt(features).
        centred: whether it describes what the offsets leave, or the error itself.
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
"""Chosen on NeuSight's operators, P4, P100, V100 and T4 left out in turn."""
NETWORK_EXPERTS = (*_weighted(_WHOLE, 0.2), *_weighted(_CENTRED, 0.8))
"""Chosen on whole networks, RTX 3090 and RTX 4090 left out in turn."""


@dataclass(frozen=True)
class Gram:
    """Covariances of n points with the k rows of a support set, part by part.

    Attributes:
        same: (n, k) 1 where both are of one stratum.
        points, rows: features.
        shared: share of the smooth parts across strata.
    """

    same: Matrix
    points: Matrix
    rows: Matrix
    shared: float
    smooth: dict[float, Matrix] = field(default_factory=dict)

    @classmethod
    def between(cls, strata: Names, features: Matrix, rows: SupportSet) -> Self:
        """The parts between n points and a support set."""
        same = (strata[:, None] == rows.strata[None, :]).astype(np.float64)
        return cls(same, features, rows.features, ACROSS_STRATA if rows.comparable else 0.0)

    def covariance(self, expert: Expert) -> Matrix:
        """(n, k) under one expert, noise left out."""
        found = 0.5 * expert.level * (1.0 + self.same)
        mix = self.shared + (1.0 - self.shared) * self.same
        if expert.trend:
            found = found + expert.trend * mix * self._product
        if expert.smooth:
            found = found + expert.smooth * mix * self._matern(expert.length)
        return np.asarray(found)

    @cached_property
    def _product(self) -> Matrix:
        return np.asarray(self.points @ self.rows.T / max(1, self.rows.shape[1]))

    def _matern(self, length: float) -> Matrix:
        if length not in self.smooth:
            scale = length * np.sqrt(max(1, self.rows.shape[1]))
            self.smooth[length] = matern(self.points / scale, self.rows / scale)
        return self.smooth[length]


@dataclass(frozen=True)
class ErrorProcess:
    """A mixture of experts given a support set.

    Attributes:
        rows: the support set.
        experts: those worth asking.
        weights: theirs, adding up to 1.
        posteriors: each given the rows.
        offsets: what centred experts start from.
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
        """Mean of the error at n points."""
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
    """Errors that remain of rows whose group was left out.

    Attributes:
        by_offset: (k,) after the offsets of the other groups.
        by_process: (k,) after the mixture given the other groups.
        weights: (e,) of the experts, from their predictive densities for these rows.
    """

    by_offset: Column
    by_process: Column
    weights: Column

    def blend(self, share: float) -> Column:
        """(k,) where the process has a share in the answers, and the offsets the rest."""
        return np.asarray((1.0 - share) * self.by_offset + share * self.by_process)


def leave_groups_out(
    rows: SupportSet, experts: Sequence[Expert], prior_factor: float = 1.0
) -> LeftOut:
    """What each group is missed by, given all others; offsets are fitted anew without it.

    Args:
        rows: k errors.
        experts: e of them; their hyperparameters are fixed, only their weights see every group.
        prior_factor: of `Offsets.fit`.
    """
    gram = Gram.between(rows.strata, rows.features, rows)
    inverses = [
        Posterior.of(_covariance(gram, rows, e), _own_noise(e), rows.errors).inverse
        for e in experts
    ]
    by_offset = np.empty(len(rows))
    left = np.empty((len(experts), len(rows)))
    score = np.log([e.weight for e in experts])
    for group in np.unique(rows.groups):
        held = rows.groups == group
        others = rows.take(np.flatnonzero(~held))
        offsets = Offsets.fit(others.errors, others.strata, others.groups, prior_factor)
        base = offsets.at(rows.strata)
        by_offset[held] = rows.errors[held] - base[held]
        targets = _targets(rows, offsets)
        variances = np.empty((len(experts), int(held.sum())))
        for i, (expert, inverse) in enumerate(zip(experts, inverses, strict=True)):
            mean, covariance = without_group(inverse, targets[expert.centred], held)
            truth = by_offset[held] if expert.centred else rows.errors[held]
            left[i, held], variances[i] = truth - mean, np.diag(covariance)
        # A group counts once, however many rows it has.
        score += log_density(left[:, held], variances).mean(axis=1)
    weights = np.exp(score - score.max())
    weights /= weights.sum()
    return LeftOut(by_offset, weights @ left, weights)


def _targets(rows: SupportSet, offsets: Offsets) -> tuple[Column, Column]:
    """Clipped errors, and what offsets leave of them."""
    base = offsets.at(rows.strata)
    reach = WINSOR * offsets.spread if rows.comparable else np.inf
    clipped = np.clip(rows.errors - base, -reach, reach)
    return clipped + base, clipped


def _covariance(gram: Gram, rows: SupportSet, expert: Expert) -> Matrix:
    same = gram.same * (rows.groups[:, None] == rows.groups[None, :])
    return np.asarray(gram.covariance(expert) + SAME_GROUP * expert.noise * same)


def _own_noise(expert: Expert) -> float:
    return (1.0 - SAME_GROUP) * expert.noise
