"""Novelty of a network: the distance of its kernel mix to that of the nearest training network.

A network's position is the square roots of the shares of its time by kind of kernel, whose
Euclidean distance is the Hellinger distance (times the square root of two), and a few figures of
its matrix products. Errors on held-out families of networks grow with this distance, and so do the
intervals. A network farther away than nearly all held-out families is outside the training domain.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.features.kernels.rows import KERNEL_ROOTS
from forerun.models.networks.rows import NETWORK_FEATURES, SHARE_COLUMNS

FIGURES = (
    *("mean_aligned_8", "mean_aligned_64", "mean_log_k", "mean_log_n", "mean_log_groups"),
    *("mean_share_of_weights", "mean_log_activations_over_l2", "mean_fill_128x128"),
    "log_launch_share",
)
"""Features that a position has in addition to the shares."""

FIGURE_WEIGHT = 0.1
"""Distance that one standard deviation of a figure stands for; mixes without a kind in common are
the square root of two apart. With figures, the distance ranked errors on held-out families better
than without (rank correlation 0.35 against 0.33 in eager runs, 0.43 against 0.41 in compiled
ones)."""

KEPT = 500
"""Training rows that are stored for either kind of runtime, eager or fused."""

_FIGURES_AT = np.array([NETWORK_FEATURES.index(name) for name in FIGURES])


@dataclass(frozen=True)
class KernelMixes:
    """Kernel mixes of the training networks.

    Attributes:
        centre, spread: (len(FIGURES),) means and standard deviations of the figures.
        fused, eager: (k, len(KERNEL_ROOTS) + len(FIGURES)) positions of training rows whose runtime
            fuses operators, and of the others.
    """

    centre: Column
    spread: Column
    fused: Matrix
    eager: Matrix

    @classmethod
    def of(cls, features: Matrix, fused: Mask) -> Self:
        """The mixes of n training rows, of which a seeded sample is stored.

        Args:
            features: (n, len(NETWORK_FEATURES)).
            fused: (n,) whether the runtime fuses operators.
        """
        figures = features[:, _FIGURES_AT]
        spread = figures.std(axis=0)
        plain = cls(
            figures.mean(axis=0),
            np.where(spread > 1e-9, spread, 1.0),
            np.zeros((0, len(KERNEL_ROOTS) + len(FIGURES))),
            np.zeros((0, len(KERNEL_ROOTS) + len(FIGURES))),
        )
        positions = plain.positions(features)
        kept = []
        for candidates in (positions[fused], positions[~fused]):
            order = np.random.default_rng(0).permutation(len(candidates))[:KEPT]
            # Rounded, so that artifacts are small.
            sample = candidates[np.sort(order)].astype(np.float16)
            kept.append(sample.astype(np.float64).round(4))
        return cls(plain.centre, plain.spread, kept[0], kept[1])

    def novelty(self, features: Matrix, fused: Mask) -> Column:
        """Distance to the nearest stored training row of the same kind of runtime, shape (n,).

        Infinite where there is none of that kind.
        """
        positions = self.positions(features)
        distance = np.full(len(positions), np.inf)
        for kind, known in ((True, self.fused), (False, self.eager)):
            rows = np.flatnonzero(fused == kind)
            if len(known):
                for row in rows.tolist():
                    difference = known - positions[row]
                    distance[row] = np.sqrt(np.einsum("ij,ij->i", difference, difference).min())
        return distance

    def nearest_difference(self, features: Matrix, fused: bool) -> str:
        """The kind of kernel whose share differs most from the nearest training row's.

        Args:
            features: (len(NETWORK_FEATURES),) of one network.
            fused: whether its runtime fuses operators.
        """
        position = self.positions(features[None])[0]
        known = self.fused if fused else self.eager
        nearest = known[int(((known - position) ** 2).sum(axis=1).argmin())]
        shares = position[: len(KERNEL_ROOTS)] ** 2 - nearest[: len(KERNEL_ROOTS)] ** 2
        return KERNEL_ROOTS[int(np.abs(shares).argmax())].replace("_", " ")

    def positions(self, features: Matrix) -> Matrix:
        """Positions of n networks, (n, len(KERNEL_ROOTS) + len(FIGURES)).

        Args:
            features: (n, len(NETWORK_FEATURES)).
        """
        figures = (features[:, _FIGURES_AT] - self.centre) / self.spread
        return np.hstack([np.sqrt(features[:, SHARE_COLUMNS]), FIGURE_WEIGHT * figures])
