"""How unlike the training networks a network is: the distance of its kernel mix to the nearest.

A network is placed by the square roots of the shares that kinds of kernels have in its time, whose
Euclidean distance is Hellinger's (times the square root of two), and by a few figures of its
products. Errors on families of networks left out grow with this distance, so that intervals do, and
what lies farther than nearly all such families is outside the training domain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.networks.additive_model import ROOTS, root_shares
from forerun.models.networks.features import FEATURES

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

FIGURES = (
    *("aligned_8", "aligned_64", "mean_log_k", "mean_log_n", "mean_log_groups"),
    *("fixed_traffic_share", "in_l2_share", "wave_fill", "log_launch_over_roofline"),
)
"""Features of a network that stand next to its shares."""

FIGURE_WEIGHT = 0.1
"""Distance of one standard deviation of a figure, where shares that have nothing in common are the
square root of two apart: with it the distance ranked errors of families left out better than
without (rank correlation of eager runs 0.35 against 0.33, of compiled ones 0.43 against 0.41)."""

KEPT = 500
"""Training rows that are kept for each execution mode, eager or fused."""

_FIGURES_AT = np.array([FEATURES.index(name) for name in FIGURES])


@dataclass(frozen=True)
class KernelMixes:
    """Where the training networks lie.

    Attributes:
        centre, spread: (len(FIGURES),) means and standard deviations of the figures.
        fused, eager: (k, len(ROOTS) + len(FIGURES)) positions of training rows by kind of runtime.
    """

    centre: Column
    spread: Column
    fused: Matrix
    eager: Matrix

    @classmethod
    def of(cls, features: Matrix, terms: Matrix, fused: NDArray[np.bool_]) -> Self:
        """The mixes of n training rows, of which a seeded sample is kept.

        Args:
            features: (n, F) of `forerun.models.networks.features.FEATURES`, the first columns at
                least.
            terms: (n, len(COLUMNS)) seconds of each term of the additive time.
            fused: (n,) whether the runtime fuses operators.
        """
        figures = features[:, _FIGURES_AT]
        spread = figures.std(axis=0)
        plain = cls(
            figures.mean(axis=0),
            np.where(spread > 1e-9, spread, 1.0),
            np.zeros((0, len(ROOTS) + len(FIGURES))),
            np.zeros((0, len(ROOTS) + len(FIGURES))),
        )
        places = plain.places(features, terms)
        kept = []
        for mine in (places[fused], places[~fused]):
            order = np.random.default_rng(0).permutation(len(mine))[:KEPT]
            # As `to_json` writes them, so that a loaded one answers alike.
            kept.append(mine[np.sort(order)].astype(np.float16).astype(np.float64).round(4))
        return cls(plain.centre, plain.spread, kept[0], kept[1])

    def novelty(self, features: Matrix, terms: Matrix, fused: NDArray[np.bool_]) -> Column:
        """Distance to the nearest kept training row of the same kind of runtime, (n,).

        Infinite where there is none of that kind.
        """
        places = self.places(features, terms)
        found = np.full(len(places), np.inf)
        for kind, known in ((True, self.fused), (False, self.eager)):
            mine = np.flatnonzero(fused == kind)
            if len(known):
                for row in mine.tolist():
                    apart = known - places[row]
                    found[row] = np.sqrt(np.einsum("ij,ij->i", apart, apart).min())
        return found

    def nearest_difference(self, features: Matrix, terms: Matrix, fused: bool) -> str:
        """The kind of kernel whose share differs most from the nearest training row's.

        Args:
            features: (F,) of one network.
            terms: (len(COLUMNS),) of one network.
            fused: whether its runtime fuses operators.
        """
        place = self.places(features[None], terms[None])[0]
        known = self.fused if fused else self.eager
        nearest = known[int(((known - place) ** 2).sum(axis=1).argmin())]
        shares = place[: len(ROOTS)] ** 2 - nearest[: len(ROOTS)] ** 2
        return ROOTS[int(np.abs(shares).argmax())].replace(":", " of ").replace("_", " ")

    def places(self, features: Matrix, terms: Matrix) -> Matrix:
        """Positions of n networks, (n, len(ROOTS) + len(FIGURES)).

        Args:
            features: (n, F) as in `of`.
            terms: (n, len(COLUMNS)) likewise.
        """
        figures = (features[:, _FIGURES_AT] - self.centre) / self.spread
        return np.hstack([np.sqrt(root_shares(terms)), FIGURE_WEIGHT * figures])

    def to_json(self) -> dict[str, Any]:
        """Plain lists; positions to four digits."""
        return {
            "centre": self.centre.tolist(),
            "spread": self.spread.tolist(),
            "fused": self.fused.round(4).tolist(),
            "eager": self.eager.round(4).tolist(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The mixes that `to_json` wrote."""
        width = len(ROOTS) + len(FIGURES)
        return cls(
            np.array(content["centre"], dtype=np.float64),
            np.array(content["spread"], dtype=np.float64),
            np.array(content["fused"], dtype=np.float64).reshape(-1, width),
            np.array(content["eager"], dtype=np.float64).reshape(-1, width),
        )
