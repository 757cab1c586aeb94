"""What boosters miss of networks like one asked about: a Gaussian process over their kernel mix.

The boosters' leaves hold a hundred rows, so that they miss single networks by as much as their
kernels are unusual, and by much the same on every GPU: a network's residual on one GPU and its
residual on another correlate by 0.84 in eager runs and 0.75 in compiled ones (RTX PRO 6000 left
out; 0.74 and 0.40 with the RTX 4090 left out). A process over the positions of
`forerun.models.networks.novelty.KernelMixes` carries these residuals over, the less the farther a
network lies; far from all training networks it adds nothing.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

LENGTH = 0.1
"""Distance at which the correlation of residuals has fallen to 1/e. With 0.1 the errors of eager
runs beyond a device's offset fall from 7.5 to 6.9 % (RTX 3090 left out), 8.4 to 7.6 (RTX 4090) and
8.0 to 7.5 (RTX PRO 6000), and those of families left out stay (5.9 and 5.9 %, compiled 7.1 and
7.2, on one fold of ten); with 0.3 the former fall by as much again on the RTX PRO 6000 alone, and
the latter rise to 6.8 and 7.4 %."""
NOISE = 0.2
"""Variance of a network's own residual, which no other shares, over that of the process."""
STEP = 1e-3
"""Positions and weights are kept in whole multiples of this, so that a loaded process answers as
the fitted one."""
FARTHEST = 30.0
"""Of a position from the mean of the training networks; 16 bits hold no more."""


@dataclass(frozen=True)
class Residuals:
    """A process for one way of running.

    Attributes:
        places: (k, d) positions of the training networks, one for each device.
        weights: (k,) what each contributes where the distance is zero.
    """

    places: Matrix
    weights: Column

    @classmethod
    def of(cls, places: Matrix, residuals: Column) -> Self:
        """The process given k residuals in log units."""
        from scipy.linalg import solve
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        rounded = np.round(np.clip(places, -FARTHEST, FARTHEST) / STEP) * STEP
        covariance = cls(rounded, np.zeros(len(rounded)))._correlation(rounded)
        covariance[np.diag_indices_from(covariance)] += NOISE
        with threadpool_limits(1):
            found = solve(covariance, residuals, assume_a="pos", overwrite_a=True)
        return cls(rounded, np.round(found / STEP) * STEP)

    def at(self, places: Matrix) -> Column:
        """Mean of the residual at n positions, in log units."""
        return np.asarray(self._correlation(places) @ self.weights)

    def _correlation(self, places: Matrix) -> Matrix:
        """exp(-distance / LENGTH) of n positions and the k of the training networks, (n, k)."""
        used, columns, squares = self._columns
        apart = (places**2).sum(axis=1)[:, None] + squares[None] - 2.0 * places[:, used] @ columns
        return np.asarray(np.exp(np.sqrt(np.maximum(apart, 0.0)) / -LENGTH))

    @cached_property
    def _columns(self) -> tuple[NDArray[np.intp], Matrix, Column]:
        """Columns that are not all zero, those columns as rows, and the squared lengths."""
        used = np.flatnonzero(self.places.any(axis=0))
        columns = np.ascontiguousarray(self.places[:, used].T)
        return used, columns, np.asarray((self.places**2).sum(axis=1))


@dataclass(frozen=True)
class NetworkResiduals:
    """A process for each way of running.

    Attributes:
        by_way: way of running -> its process.
    """

    by_way: Mapping[str, Residuals] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, places: Matrix, residuals: Column, modes: NDArray[np.str_], same: NDArray[np.intp]
    ) -> Self:
        """Processes from the residuals of n training rows.

        Args:
            places: (n, d) positions.
            residuals: (n,) log(measured / predicted) by the boosters.
            modes: execution mode of each row.
            same: (n,) codes: rows of one network on one device, whose mean is taken in each way.
        """
        found = {}
        for way in np.unique(modes):
            mine = np.flatnonzero(modes == way)
            _, codes, counts = np.unique(same[mine], return_inverse=True, return_counts=True)
            mean = np.zeros((len(counts), places.shape[1] + 1))
            np.add.at(mean, codes, np.column_stack([places[mine], residuals[mine]]))
            mean /= counts[:, None]
            found[str(way)] = Residuals.of(mean[:, :-1], mean[:, -1])
        return cls(found)

    def at(self, places: Matrix, modes: NDArray[np.str_]) -> Column:
        """Mean of the residual of n networks, in log units; zero in a way that no row had."""
        found = np.zeros(len(places))
        for way, process in self.by_way.items():
            mine = np.flatnonzero(modes == way)
            if len(mine):
                found[mine] = process.at(places[mine])
        return found

    def to_json(self) -> dict[str, Any]:
        """Whole multiples of `STEP`, as base64 of 16- and 32-bit integers."""
        return {
            way: {
                "shape": list(process.places.shape),
                "places": _packed(process.places, "<i2"),
                "weights": _packed(process.weights, "<i4"),
            }
            for way, process in self.by_way.items()
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The processes that `to_json` wrote."""
        return cls(
            {
                way: Residuals(
                    _unpacked(one["places"], "<i2", one["shape"]),
                    _unpacked(one["weights"], "<i4", one["shape"][:1]),
                )
                for way, one in content.items()
            }
        )


def _packed(values: NDArray[np.float64], kind: str) -> str:
    return base64.b64encode(np.round(values / STEP).astype(kind).tobytes()).decode()


def _unpacked(text: str, kind: str, shape: Sequence[int]) -> NDArray[np.float64]:
    whole = np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)
    return np.asarray(whole.astype(np.float64) * STEP)
