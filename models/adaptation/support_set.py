"""Support sets: the errors of a predictor on the few rows measured on a device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.gaussian_process.posterior import distances

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Names = NDArray[np.str_]

SAME_POINT = 1e-4
"""Distance of standardised features below which two rows are one point."""


@dataclass(frozen=True)
class SupportSet:
    """k errors with what they depend on.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: (k,) names: execution modes, operator families.
        features: (k, d) standardised.
        groups: (k,) codes of what is measured (a model, an operator's shape).
        keys: (k,) names of the groups; empty where points stand for themselves.
        comparable: whether features mean the same in all strata.
    """

    errors: Column
    strata: Names
    features: Matrix
    groups: NDArray[np.intp]
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
        """The rows without repetitions of one measurement.

        Args:
            errors: (n,).
            strata: n names.
            features: (n, d) standardised.
            keys: n names of groups; without them rows of one stratum with equal features are one.
            comparable: as in the attributes.
        """
        features = np.asarray(features, dtype=np.float64).round(6) + 0.0
        names = np.array(strata, dtype=np.str_)
        points = np.unique(features, axis=0, return_inverse=True)[1].reshape(-1)
        strata_codes = np.unique(names, return_inverse=True)[1]
        if keys is None and len(errors) > 1 and points.max() == 0:
            # Features that never differ identify nothing: each row stands for itself.
            keys = [f"#{row}" for row in range(len(errors))]
        if keys is None:
            own = np.stack([points, strata_codes], axis=1)
            groups = np.unique(own, axis=0, return_inverse=True)[1].reshape(-1)
            labels = np.full(len(errors), "", dtype=np.str_)
        else:
            labels = np.array(keys, dtype=np.str_)
            groups = np.unique(labels, return_inverse=True)[1].reshape(-1)
        # One measurement sent twice counts once.
        identity = np.stack([points, strata_codes, groups, errors], axis=1)
        kept = np.sort(np.unique(identity, axis=0, return_index=True)[1])
        whole = cls(
            np.asarray(errors, dtype=np.float64), names, features, groups, labels, comparable
        )
        return whole if len(kept) == len(errors) else whole.take(kept)

    def __len__(self) -> int:
        return len(self.errors)

    def take(self, chosen: NDArray[np.intp]) -> Self:
        """The rows at these positions."""
        return type(self)(
            self.errors[chosen],
            self.strata[chosen],
            self.features[chosen],
            self.groups[chosen],
            self.keys[chosen],
            self.comparable,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {
            "errors": self.errors.tolist(),
            "strata": self.strata.tolist(),
            "features": self.features.tolist(),
            "keys": self.keys.tolist() if self.named else None,
            "comparable": self.comparable,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The rows that `to_json` wrote."""
        return cls.of(
            np.array(content["errors"], dtype=np.float64),
            content["strata"],
            np.array(content["features"], dtype=np.float64),
            content["keys"],
            bool(content["comparable"]),
        )

    @property
    def named(self) -> bool:
        """Whether groups have names."""
        return bool(len(self.keys)) and bool((self.keys != "").any())

    def relation(
        self, strata: Names, features: Matrix, keys: Sequence[str] | None
    ) -> tuple[Matrix, NDArray[np.bool_], NDArray[np.bool_]]:
        """How n queries relate to the k rows.

        Returns:
            (n, k) distances, infinite across strata; whether they are the same point in the same
            stratum; whether they are of one group.
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
