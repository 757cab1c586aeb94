"""Intervals of serving: from models held out on devices that stay, and from devices held out.

A device never measured misses by its own level and by the model's: both are put together, and the
sum is never taken for less than a factor of two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.conformal.intervals import POOLED, LogQuantiles, held_out_folds

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Missed = Callable[[NDArray[np.bool_]], Matrix]
"""Rows held out -> their log errors in the three targets, by a fit on the others."""
FOLDS: Final = 10
ANOTHER_DEVICE: Final = float(np.log(2.0))


@dataclass(frozen=True)
class ServingIntervals:
    """Bounds of log(measured / predicted), a target each.

    Attributes:
        seen: (3, 2) low and high on devices that taught.
        unseen: (3, 2) on others.
    """

    seen: Matrix
    unseen: Matrix

    @classmethod
    def of(
        cls, models: NDArray[np.str_], devices: NDArray[np.str_], missed: Missed, seed: int
    ) -> Self:
        """Quantiles of what fits miss that did not see the model, or the device.

        Args:
            models: keys of n rows.
            devices: keys of n rows.
            missed: what a fit on the other rows misses by.
            seed: spreads models over folds.
        """
        seen = np.full((len(models), 3), np.nan)
        for held in held_out_folds(models, FOLDS, seed):
            if not held.all():
                seen[held] = missed(held)
        near = _bounds(seen)
        names = np.unique(devices)
        if len(names) < 2:
            return cls(near, _further(near, np.zeros((3, 2))))
        moved = np.concatenate([missed(devices == name) for name in names])
        return cls(near, _further(near, _bounds(np.concatenate([moved, -moved]))))

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {"seen": self.seen.tolist(), "unseen": self.unseen.tolist()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(np.array(content["seen"]), np.array(content["unseen"]))


def _bounds(errors: Matrix) -> Matrix:
    found = [LogQuantiles.pooled(column).bounds[POOLED] for column in errors.T]
    return np.array([(min(low, 0.0), max(high, 0.0)) for low, high in found])


def _further(near: Matrix, moved: Matrix) -> Matrix:
    both = np.hypot(near, moved)
    return np.asarray(np.maximum(both, ANOTHER_DEVICE) * np.array([-1.0, 1.0]))
