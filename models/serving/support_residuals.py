"""A few runs shown: what a predictor missed them by, spread to runs like them.

Errors are a level of the device plus a part that models alike share: a run tells most about the
same model in other settings, little about others. A device that taught has no level of its own to
speak of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.models.domain.feature_range import KnownDevices, Sheet, same_sheet, sheet
from forerun.models.gaussian_process.posterior import distances
from forerun.models.serving.features import ServingRows

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
LEVEL, TAUGHT_LEVEL = 0.4, 0.03
SMOOTH = (0.2, 0.4)
NOISE = (0.1, 0.12)
"""Standard deviations in log space; of power share and of time over bound."""
ALIKE: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
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
"""Length scales: models are told apart by their sizes, settings blend."""


@dataclass(frozen=True)
class SupportResiduals:
    """k runs of one kind that were shown.

    Attributes:
        kind: of the workloads.
        places: (k, d).
        errors: (k, 2) of power share and time over bound, log space.
        sheets: k devices.
        taught: whether the devices taught the predictor.
    """

    kind: str
    places: Matrix
    errors: Matrix
    sheets: tuple[Sheet, ...]
    taught: tuple[bool, ...]

    @classmethod
    def of(
        cls, rows: ServingRows, errors: Matrix, devices: Sequence[Device], known: KnownDevices
    ) -> Self:
        """Runs on these devices; errors are without missing values."""
        places = rows.places(ALIKE[rows.kind])
        sheets = tuple(sheet(device) for device in devices)
        return cls(rows.kind, places, errors, sheets, tuple(device in known for device in devices))

    def rows(self, device: Device) -> int:
        """Runs shown on a device."""
        mine = sheet(device)
        return sum(same_sheet(mine, one) for one in self.sheets)

    def correction(self, rows: ServingRows, devices: Sequence[Device]) -> tuple[Matrix, Matrix]:
        """What to add in log space, and which part of the spread is left, (n, 2) each."""
        places = rows.places(ALIKE[self.kind])
        asked = [sheet(device) for device in devices]
        taught = np.array([self._taught(one) for one in asked])
        added, left = np.zeros((len(places), 2)), np.ones((len(places), 2))
        for target, (smooth, noise) in enumerate(zip(SMOOTH, NOISE, strict=True)):
            shown = self._between(self.places, self.sheets, np.array(self.taught), smooth)
            inverse = np.linalg.inv(shown + noise**2 * np.eye(len(shown)))
            cross = self._between(places, asked, taught, smooth)
            weights = inverse @ self.errors[:, target]
            # One row at a time: sums must not depend on the rows beside it.
            added[:, target] = [row @ weights for row in cross]
            prior = np.where(taught, TAUGHT_LEVEL, LEVEL) ** 2 + smooth**2
            known = np.array([row @ inverse @ row for row in cross])
            rest = np.maximum(prior - known, 0.0)
            left[:, target] = np.sqrt((rest + noise**2) / (prior + noise**2))
        return added, left

    def _taught(self, one: Sheet) -> bool:
        """A device not shown has no level to share; the flag does not matter then."""
        found = [t for s, t in zip(self.sheets, self.taught, strict=True) if same_sheet(s, one)]
        return found[0] if found else True

    def _between(
        self, places: Matrix, sheets: Sequence[Sheet], taught: NDArray[np.bool_], smooth: float
    ) -> Matrix:
        """Covariance of rows with the rows shown."""
        same = np.array([[same_sheet(a, b) for b in self.sheets] for a in sheets], dtype=np.bool_)
        level = np.where(taught, TAUGHT_LEVEL, LEVEL)[:, None] ** 2 * same.reshape(len(places), -1)
        apart = distances(places, self.places)
        return np.asarray(level + smooth**2 * np.exp(-0.5 * apart**2))

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {
            "kind": self.kind,
            "places": self.places.tolist(),
            "errors": self.errors.tolist(),
            "sheets": [list(one) for one in self.sheets],
            "taught": list(self.taught),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        sheets = tuple(tuple(one) for one in content["sheets"])
        places, errors = np.array(content["places"]), np.array(content["errors"])
        return cls(content["kind"], places, errors, sheets, tuple(content["taught"]))
