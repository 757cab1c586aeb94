"""Support sets: the rows measured on a device, and the choice of rows to measure next.

Half of the next rows are chosen greedily by how much they lower the summed variance of a Gaussian
process over the candidates (Cohn 1996; variances do not depend on measured values), half by the
largest remaining variance, which selects the boundary of the feature space. Boundary rows determine
slopes when times are noisy; inner rows keep the absolute error low.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.models.gaussian_process.regression import Covariance, distances, weighted_sum

MOST_CANDIDATES = 1500
ERRORS = (
    Covariance("constant"),
    Covariance("linear"),
    Covariance("radial", length=2.0 / 3.0),
    Covariance("radial", length=5.0 / 3.0),
)
ERROR_WEIGHTS = np.array([0.04, 0.03, 0.02, 0.02])
ERROR_NOISE = 0.02
"""Covariances, weights and noise variance of a predictor's error on a new device, in log units."""


def suggest(
    rows: Matrix,
    covariances: Sequence[Covariance],
    weights: Column,
    noise: float,
    count: int,
    seed: int,
    spread: float = 0.5,
) -> list[int]:
    """Positions of `count` different rows to measure, most informative first.

    Args:
        rows: standardised candidates, shape (n, columns); above 1,500, a sample is used.
        covariances: covariance functions whose weighted sum is that of the process.
        weights: prior variance of each of `covariances`.
        noise: variance of one measurement.
        count: number to choose; all if there are fewer candidates.
        seed: orders the candidates, which breaks ties, and draws the sample.
        spread: share of rows chosen by the largest remaining variance.
    """
    generator = np.random.default_rng(seed)
    sampled = generator.permutation(len(rows))[:MOST_CANDIDATES]
    candidates = rows[sampled]
    covariance = weighted_sum(weights, covariances, candidates, candidates)
    return [int(sampled[i]) for i in most_informative(covariance, noise, count, spread)]


def most_informative(
    covariance: Matrix, noise: Column | float, count: int, spread: float = 0.0
) -> list[int]:
    """Greedily choose the rows whose measurement lowers the summed variance most.

    Args:
        covariance: of n candidates given what is measured already, shape (n, n).
        noise: variance of one measurement, one value or (n,).
        count: number to choose, at most n.
        spread: as in `suggest`.
    """
    remaining, chosen = covariance.copy(), list[int]()
    free = np.ones(len(covariance), dtype=np.bool_)
    for step in range(min(count, len(covariance))):
        variance = np.maximum(np.diag(remaining), 0.0)
        by_variance = int((step + 1) * spread) > int(step * spread)
        gain = variance if by_variance else (remaining**2).sum(axis=0) / (variance + noise)
        best = int(np.argmax(np.where(free, gain, -np.inf)))
        column = remaining[:, best] / np.sqrt((variance + noise)[best])
        remaining -= np.outer(column, column)
        free[best] = False
        chosen.append(best)
    return chosen


def suggest_for_errors(features: Matrix, count: int, seed: int = 0) -> list[int]:
    """Positions of `count` rows most informative about a predictor's error on a device.

    All are chosen by how much they lower the summed variance, none by the largest variance. With
    half of the rows chosen by the largest variance, errors were higher than with random rows: on
    networks (RTX 3090: 9.97 against 9.85 % with 5 models, 9.58 against 9.00 % with 10) and on
    linear layers (28.9 against 24.3 % with 5). Without them, 5 and 10 of 100 models give errors of
    9.5 and 9.0 % on RTX 3090 (random: 9.9 and 9.0 %), 10.6 and 10.1 % on RTX 4090 (random: 13.0 and
    11.0 %), and 5 of 300 operators 19.5, 22.0 and 10.0 % on batched products, linear and
    elementwise operators (random: 21.4, 24.3 and 11.9 %; P4, P100, V100, T4 held out).

    Args:
        features: candidates scaled by `Standardizer`, shape (n, columns).
        count: number to choose; all if there are fewer candidates.
        seed: as in `suggest`.
    """
    return suggest(features, ERRORS, ERROR_WEIGHTS, ERROR_NOISE, count, seed, spread=0.0)


def in_turns(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Positions from several rankings in turn: the first of each, then the second of each, ..."""
    turns = chain.from_iterable(zip_longest(*rankings))
    return [row for row in turns if row is not None]


def farthest_points(
    points: Matrix,
    count: int,
    start: Sequence[int] = (),
    measured: Matrix | None = None,
    random: np.random.Generator | None = None,
) -> list[int]:
    """Farthest-point sampling (Gonzalez 1985): each point is the farthest from those before it.

    Args:
        points: n candidates, shape (n, columns).
        count: number to choose, at most n.
        start: positions of the first points, which are part of the result.
        measured: further points to keep away from, shape (m, columns).
        random: breaks ties; if None, the first of equal points is chosen.

    Returns:
        Distinct positions in the order of choice.
    """
    chosen = list(start)
    taken = points[chosen] if measured is None else np.vstack([measured, points[chosen]])
    nearest = distances(points, taken).min(axis=1, initial=np.inf)
    while len(chosen) < min(count, len(points)):
        nearest[chosen] = -1.0
        ties = 0.0 if random is None else 1e-9 * random.random(len(points))
        chosen.append(int(np.argmax(nearest + ties)))
        nearest = np.minimum(nearest, distances(points, points[chosen[-1:]])[:, 0])
    return chosen


SAME_POINT = 1e-4
"""Distance of standardised features below which two rows count as equal."""


@dataclass(frozen=True)
class SupportSet(Columns):
    """Log errors of k measured rows, with their strata, features and groups.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: (k,) names of strata: execution modes or operator families.
        features: (k, d) standardised features.
        groups: (k,) group codes (a model, an operator's shape).
        keys: (k,) group names; empty strings where features identify groups.
        comparable: whether features mean the same in all strata.
    """

    errors: Column
    strata: Names
    features: Matrix
    groups: Positions
    keys: Names
    comparable: bool = False

    @classmethod
    def of(
        cls,
        errors: Column,
        strata: Sequence[str],
        features: Matrix,
        keys: Sequence[str] | None = None,
        comparable: bool = False,
    ) -> Self:
        """The support set of n rows, with duplicates removed.

        Args:
            errors: (n,) log(measured / predicted).
            strata: n names of strata.
            features: (n, d) standardised features.
            keys: n group names; if None, rows of one stratum with equal features form a group.
            comparable: whether features mean the same in all strata.
        """
        features = np.asarray(features, dtype=np.float64).round(6) + 0.0
        names = np.array(strata, dtype=np.str_)
        points = np.unique(features, axis=0, return_inverse=True)[1].reshape(-1)
        strata_codes = np.unique(names, return_inverse=True)[1]
        if keys is None and len(errors) > 1 and points.max() == 0:
            # Constant features identify no groups, so each row is its own group.
            keys = [f"#{row}" for row in range(len(errors))]
        if keys is None:
            points_of_strata = np.stack([points, strata_codes], axis=1)
            groups = np.unique(points_of_strata, axis=0, return_inverse=True)[1].reshape(-1)
            labels = np.full(len(errors), "", dtype=np.str_)
        else:
            labels = np.array(keys, dtype=np.str_)
            groups = np.unique(labels, return_inverse=True)[1].reshape(-1)
        # Duplicates of a measurement count once.
        identity = np.stack([points, strata_codes, groups, errors], axis=1)
        kept = np.sort(np.unique(identity, axis=0, return_index=True)[1])
        whole = cls(
            np.asarray(errors, dtype=np.float64), names, features, groups, labels, comparable
        )
        return whole if len(kept) == len(errors) else whole.take(kept)

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def named(self) -> bool:
        """Whether groups have names."""
        return bool(len(self.keys)) and bool((self.keys != "").any())

    def relation(
        self, strata: Names, features: Matrix, keys: Sequence[str] | None
    ) -> tuple[Matrix, Mask, Mask]:
        """Distances of n queries to the k rows, and whether they match or share a group.

        Args:
            strata: (n,) names of strata.
            features: (n, d) standardised features.
            keys: n names of groups, or None.

        Returns:
            Three matrices of shape (n, k): distances, infinite across strata; whether stratum,
            features and group are all equal; whether query and row share a group.
        """
        distance = distances(features, self.features)
        same_stratum = strata[:, None] == self.strata[None, :]
        matched = same_stratum & (distance < SAME_POINT)
        if not self.named:
            group = matched
        elif keys is None:
            matched = group = np.zeros_like(same_stratum)
        else:
            group = np.array(keys, dtype=np.str_)[:, None] == self.keys[None, :]
            matched = matched & group
        return np.where(same_stratum, distance, np.inf), matched, group
