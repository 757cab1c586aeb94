"""Support sets: the errors of a predictor on a few rows measured on a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.models.gaussian_process.covariances import distances

SAME_POINT = 1e-4
"""Distance of standardised features below which two rows count as equal."""


@dataclass(frozen=True)
class SupportSet(Columns):
    """Log errors of k measured rows, with their strata, features and groups.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: (k,) names of strata: execution modes or operator families.
        features: (k, d) standardised features.
        groups: (k,) codes of groups (a model, an operator's shape).
        keys: (k,) names of groups; empty strings where features identify groups.
        comparable: whether features have the same meaning in all strata.
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
        """The support set of n rows without duplicates.

        Args:
            errors: (n,) log(measured / predicted).
            strata: n names of strata.
            features: (n, d) standardised features.
            keys: n names of groups; if None, rows of one stratum with equal features are a group.
            comparable: whether features have the same meaning in all strata.
        """
        features = np.asarray(features, dtype=np.float64).round(6) + 0.0
        names = np.array(strata, dtype=np.str_)
        points = np.unique(features, axis=0, return_inverse=True)[1].reshape(-1)
        strata_codes = np.unique(names, return_inverse=True)[1]
        if keys is None and len(errors) > 1 and points.max() == 0:
            # Constant features identify no groups: each row is a group.
            keys = [f"#{row}" for row in range(len(errors))]
        if keys is None:
            own = np.stack([points, strata_codes], axis=1)
            groups = np.unique(own, axis=0, return_inverse=True)[1].reshape(-1)
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
            Three matrices of shape (n, k): distances, infinite across strata; whether query and row
            are equal in stratum, features and group; whether they belong to one group.
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
