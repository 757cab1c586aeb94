"""Few-shot correction: the residuals of a support set, extended to similar queries.

The residuals follow a Gaussian process: an effect of the device plus a smooth function of the
model and its settings. A support run informs mostly about the same model with other settings, and
little about other models. The effect of a device in the training set is close to zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.models.domain.feature_range import KnownDevices, Sheet, same_sheet, sheet
from forerun.models.gaussian_process.posterior import distances
from forerun.models.serving.features import ServingRows

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
NEW_DEVICE_DEVIATION, TRAINED_DEVICE_DEVIATION = 0.4, 0.03
"""Prior standard deviations, in log space, of the effect of a device outside the training set and
of one in it."""
SMOOTH_DEVIATION = (0.2, 0.4)
NOISE_DEVIATION = (0.1, 0.12)
"""Standard deviations, in log space, of power share and of time over bound."""
LENGTH_SCALES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "llm_serving": MappingProxyType(
            {
                "log_total_parameters": 0.5,
                "log_active_parameters": 0.5,
                "log_weight_bytes": 0.7,
                "reasoning": 1.0,
                "code": 1.0,
                "image": 1.0,
                "video": 1.0,
                "log_sequences": 4.0,
                "log_devices": 2.0,
                "log_tensor_parallel": 3.0,
                "log_expert_parallel": 3.0,
                "log_bandwidth": 2.0,
            }
        ),
        "diffusion": MappingProxyType(
            {
                "log_parameters": 0.3,
                "log_tokens": 1.0,
                "log_steps": 1.0,
                "log_batch": 4.0,
                "log_devices": 2.0,
                "log_ring_parallel": 4.0,
                "log_ulysses_parallel": 4.0,
                "log_bandwidth": 2.0,
            }
        ),
    }
)
"""Length scales of the features, short for the sizes of a model and long for its settings."""


@dataclass(frozen=True)
class SupportResiduals:
    """k support runs of one kind of workload.

    Attributes:
        kind: kind of the workloads.
        points: (k, d) features in units of their length scales.
        errors: (k, 2) residuals of power share and of time over bound, in log space.
        sheets: k spec sheets of the devices.
        trained: k flags, whether the device is in the training set of the predictor.
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
        points = rows.points(LENGTH_SCALES[rows.kind])
        sheets = tuple(sheet(device) for device in devices)
        return cls(rows.kind, points, errors, sheets, tuple(device in known for device in devices))

    def rows(self, device: Device) -> int:
        """Number of support runs on a device."""
        own = sheet(device)
        return sum(same_sheet(own, other) for other in self.sheets)

    def correction(self, rows: ServingRows, devices: Sequence[Device]) -> tuple[Matrix, Matrix]:
        """Posterior of the residuals of n queries.

        Args:
            rows: n queries of this kind.
            devices: n devices.

        Returns:
            (n, 2) means, to be added to the predictions in log space; (n, 2) posterior over prior
            standard deviations.
        """
        points = rows.points(LENGTH_SCALES[self.kind])
        sheets = [sheet(device) for device in devices]
        trained = np.array([self._is_trained(figures) for figures in sheets])
        means, ratios = np.zeros((len(points), 2)), np.ones((len(points), 2))
        deviations = zip(SMOOTH_DEVIATION, NOISE_DEVIATION, strict=True)
        for target, (smooth, noise) in enumerate(deviations):
            gram = self._covariance(self.points, self.sheets, np.array(self.trained), smooth)
            inverse = np.linalg.inv(gram + noise**2 * np.eye(len(gram)))
            cross = self._covariance(points, sheets, trained, smooth)
            weights = inverse @ self.errors[:, target]
            # One row at a time, so that rounding does not depend on the other rows of the batch.
            means[:, target] = [row @ weights for row in cross]
            device = np.where(trained, TRAINED_DEVICE_DEVIATION, NEW_DEVICE_DEVIATION)
            prior = device**2 + smooth**2
            explained = np.array([row @ inverse @ row for row in cross])
            posterior = np.maximum(prior - explained, 0.0)
            ratios[:, target] = np.sqrt((posterior + noise**2) / (prior + noise**2))
        return means, ratios

    def _is_trained(self, device: Sheet) -> bool:
        """Flag of a device in the support set.

        Any other device has no covariance with the support set through its effect, so its flag
        does not change the mean.
        """
        flags = [
            flag
            for own, flag in zip(self.sheets, self.trained, strict=True)
            if same_sheet(own, device)
        ]
        return flags[0] if flags else True

    def _covariance(
        self, points: Matrix, sheets: Sequence[Sheet], trained: NDArray[np.bool_], smooth: float
    ) -> Matrix:
        """Prior covariance of n rows with the k support rows, shape (n, k)."""
        same = np.array([[same_sheet(a, b) for b in self.sheets] for a in sheets], dtype=np.bool_)
        device = np.where(trained, TRAINED_DEVICE_DEVIATION, NEW_DEVICE_DEVIATION)[:, None]
        effect = device**2 * same.reshape(len(points), -1)
        apart = distances(points, self.points)
        return np.asarray(effect + smooth**2 * np.exp(-0.5 * apart**2))
