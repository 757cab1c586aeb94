"""A few runs shown: what a predictor missed them by, spread to runs like them.

Errors are a level of the device plus a smooth part over the places of the process, nearer to home
than there: a run tells most about the same model in other settings. A device that taught has no
level of its own to speak of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.models.adaptation.gaussian_process import distances
from forerun.models.domain import KnownDevices, Sheet, same_sheet, sheet

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
LEVEL, TAUGHT_LEVEL, SMOOTH, NOISE = 0.4, 0.03, 0.25, 0.1
"""Standard deviations in log space."""
NEARNESS = 3.0
"""By which places are further apart here than in the process."""


@dataclass(frozen=True)
class ShownRuns:
    """k runs of one kind that were shown.

    Attributes:
        places: (k, d).
        errors: (k, 2) of power share and time over bound, log space.
        sheets: k devices.
        taught: whether the devices taught the predictor.
    """

    places: Matrix
    errors: Matrix
    sheets: tuple[Sheet, ...]
    taught: tuple[bool, ...]

    @classmethod
    def of(
        cls, places: Matrix, errors: Matrix, devices: Sequence[Device], known: KnownDevices
    ) -> Self:
        """Runs on these devices; errors are without missing values."""
        sheets = tuple(sheet(device) for device in devices)
        return cls(places, errors, sheets, tuple(device in known for device in devices))

    def rows(self, device: Device) -> int:
        """Runs shown on a device."""
        mine = sheet(device)
        return sum(same_sheet(mine, one) for one in self.sheets)

    def correction(self, places: Matrix, devices: Sequence[Device]) -> tuple[Matrix, Column]:
        """What to add in log space, (n, 2), and which part of the spread is left, (n,)."""
        asked = [sheet(device) for device in devices]
        taught = np.array([self._taught(one) for one in asked])
        shown = self._between(self.places, self.sheets, np.array(self.taught))
        inverse = np.linalg.inv(shown + NOISE**2 * np.eye(len(shown)))
        cross = self._between(places, asked, taught)
        prior = np.where(taught, TAUGHT_LEVEL, LEVEL) ** 2 + SMOOTH**2
        left = prior - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        weights = inverse @ self.errors
        added = np.array([row @ weights for row in cross]).reshape(len(places), 2)
        return added, np.sqrt((np.maximum(left, 0.0) + NOISE**2) / (prior + NOISE**2))

    def _taught(self, one: Sheet) -> bool:
        """A device not shown has no level to share; the flag does not matter then."""
        found = [t for s, t in zip(self.sheets, self.taught, strict=True) if same_sheet(s, one)]
        return found[0] if found else True

    def _between(
        self, places: Matrix, sheets: Sequence[Sheet], taught: NDArray[np.bool_]
    ) -> Matrix:
        """Covariance of rows with the rows shown."""
        same = np.array([[same_sheet(a, b) for b in self.sheets] for a in sheets], dtype=np.bool_)
        level = np.where(taught, TAUGHT_LEVEL, LEVEL)[:, None] ** 2 * same.reshape(len(places), -1)
        apart = NEARNESS * distances(places, self.places)
        return np.asarray(level + SMOOTH**2 * np.exp(-0.5 * apart**2))

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {
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
        return cls(places, errors, sheets, tuple(content["taught"]))
