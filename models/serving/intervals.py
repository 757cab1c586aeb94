"""Prediction intervals of serving, calibrated on held-out models and on held-out devices.

On a device outside the training set the error of the device adds to the error of the model: the
bounds of both are combined as the root of their sum of squares, and are at least a factor of two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.conformal.intervals import POOLED, LogQuantiles, held_out_folds

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
HeldOutResiduals = Callable[[NDArray[np.bool_]], Matrix]
"""Mask of rows to hold out -> (held out, 3) residuals in log space, by a fit on the other rows."""
FOLDS: Final = 10
ANOTHER_DEVICE: Final = float(np.log(2.0))
"""Least distance of the bounds on a device outside the training set."""


@dataclass(frozen=True)
class ServingIntervals:
    """Bounds of log(measured / predicted) for each of three targets.

    Attributes:
        seen: (3, 2) low and high on devices in the training set.
        unseen: (3, 2) low and high on other devices.
    """

    seen: Matrix
    unseen: Matrix

    @classmethod
    def of(
        cls,
        models: NDArray[np.str_],
        devices: NDArray[np.str_],
        residuals: HeldOutResiduals,
        seed: int,
    ) -> Self:
        """Bounds from residuals of held-out models and of held-out devices.

        Args:
            models: model of each of n rows, a group that is held out whole.
            devices: device of each of n rows, which is also held out whole.
            residuals: residuals of held-out rows by a fit on the other rows.
            seed: assigns models to folds.
        """
        by_model = np.full((len(models), 3), np.nan)
        for held in held_out_folds(models, FOLDS, seed):
            if not held.all():
                by_model[held] = residuals(held)
        seen = _bounds(by_model)
        names = np.unique(devices)
        if len(names) < 2:
            return cls(seen, _combined(seen, np.zeros((3, 2))))
        by_device = np.concatenate([residuals(devices == name) for name in names])
        # Both signs of each residual count, so that these bounds are symmetric.
        unseen = _bounds(np.concatenate([by_device, -by_device]))
        return cls(seen, _combined(seen, unseen))


def _bounds(residuals: Matrix) -> Matrix:
    """Conformal bounds of each column, which contain 0; shape (3, 2)."""
    bounds = [LogQuantiles.pooled(column).bounds[POOLED] for column in residuals.T]
    return np.array([(min(low, 0.0), max(high, 0.0)) for low, high in bounds])


def _combined(model: Matrix, device: Matrix) -> Matrix:
    """Bounds on another device, from those of the model's and the device's error; shape (3, 2)."""
    both = np.hypot(model, device)
    return np.asarray(np.maximum(both, ANOTHER_DEVICE) * np.array([-1.0, 1.0]))
