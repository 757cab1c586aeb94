"""Few-shot correction: the residuals of a support set, extended to similar queries.

The residuals follow a Gaussian process: an effect of the device plus a smooth function of the model
and its settings. A support run informs mostly about the same model with other settings, and little
about other models. The effect of a device in the training set is close to zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.data.device import Device
from forerun.models.domain.feature_range import KnownDevices, Sheet, same_sheet, sheet
from forerun.models.gaussian_process.regression import Posterior, squared_exponential
from forerun.models.serving.features import LENGTH_SCALES, ServingRows

NEW_DEVICE_DEVIATION, TRAINED_DEVICE_DEVIATION = 0.4, 0.03
"""Prior standard deviations, in log space, of the effect of a device outside the training set and
of one in it."""
SMOOTH_DEVIATION = (0.2, 0.4)
NOISE_DEVIATION = (0.1, 0.12)
"""Standard deviations, in log space, of power share and of time over bound."""


@dataclass(frozen=True)
class SupportResiduals:
    """k support runs of one kind of workload.

    Attributes:
        kind: kind of the workloads.
        points: (k, d) features in units of their length scales.
        errors: (k, 2) residuals of power share and of time over bound, in log space.
        sheets: k spec sheets of the devices.
        trained: k flags, whether the device is in the predictor's training set.
    """

    kind: str
    points: Matrix
    errors: Matrix
    sheets: tuple[Sheet, ...]
    trained: tuple[bool, ...]

    @classmethod
    def of(
        cls, rows: ServingRows, errors: Matrix, devices: Sequence[Device], known: KnownDevices
    ) -> Self:
        """The support set of k runs.

        Args:
            rows: k runs of one kind.
            errors: (k, 2) residuals as in the attribute, none missing.
            devices: k devices.
            known: devices in the training set.
        """
        points = rows.points(LENGTH_SCALES["support"][rows.kind])
        sheets = tuple(sheet(device) for device in devices)
        return cls(rows.kind, points, errors, sheets, tuple(device in known for device in devices))

    def rows(self, device: Device) -> int:
        """Number of support runs on a device."""
        key = sheet(device)
        return sum(same_sheet(key, other) for other in self.sheets)

    def correction(self, rows: ServingRows, devices: Sequence[Device]) -> tuple[Matrix, Matrix]:
        """Posterior of the residuals of n queries.

        Args:
            rows: n queries of this kind.
            devices: n devices.

        Returns:
            (n, 2) means, to be added to the predictions in log space; (n, 2) posterior over prior
            standard deviations.
        """
        points = rows.points(LENGTH_SCALES["support"][self.kind])
        effect, same, near = self._relation(points, [sheet(device) for device in devices])
        means, ratios = np.zeros((len(points), 2)), np.ones((len(points), 2))
        for target, posterior in enumerate(self._posteriors):
            smooth, noise = SMOOTH_DEVIATION[target] ** 2, NOISE_DEVIATION[target] ** 2
            prior = effect + smooth
            # One row at a time, so that rounding does not depend on the other rows of the batch.
            cross = [row[None] for row in effect[:, None] * same + smooth * near]
            means[:, target] = [posterior.mean(row)[0] for row in cross]
            per_row = zip(cross, prior[:, None], strict=True)
            left = [posterior.variance(*row)[0] for row in per_row]
            ratios[:, target] = np.sqrt((np.array(left) + noise) / (prior + noise))
        return means, ratios

    @cached_property
    def _posteriors(self) -> tuple[Posterior, ...]:
        """Posteriors of the two targets given the residuals of the support runs."""
        effect, same, near = self._relation(self.points, self.sheets)
        return tuple(
            Posterior.of(effect[:, None] * same + smooth**2 * near, noise**2, errors)
            for smooth, noise, errors in zip(
                SMOOTH_DEVIATION, NOISE_DEVIATION, self.errors.T, strict=True
            )
        )

    def _relation(self, points: Matrix, sheets: Sequence[Sheet]) -> tuple[Column, Mask, Matrix]:
        """Covariances between n rows and the k support runs.

        Returns:
            Prior variances of the device effects, shape (n,); whether row and run are on the same
            device, (n, k); correlations of the smooth function, (n, k).
        """
        flags = [[same_sheet(one, other) for other in self.sheets] for one in sheets]
        same = np.array(flags, dtype=np.bool_).reshape(len(points), -1)
        # A device without support runs has no covariance with theirs in any case.
        trained = np.array(self.trained)[same.argmax(axis=1)] | ~same.any(axis=1)
        deviation = np.where(trained, TRAINED_DEVICE_DEVIATION, NEW_DEVICE_DEVIATION)
        return deviation**2, same, squared_exponential(points, self.points)
