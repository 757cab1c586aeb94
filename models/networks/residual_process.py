"""A Gaussian process on the boosters' residuals, over the kernel mix of networks.

A leaf of the boosters holds at least a hundred rows, so that a network with unusual kernels has a
residual of its own. That residual is similar on every GPU: residuals of one network on two GPUs
have a correlation of 0.84 in eager runs and 0.75 in compiled ones (RTX PRO 6000 held out; 0.74 and
0.40 with the RTX 4090 held out). A Gaussian process with an exponential covariance over the
positions of `forerun.models.networks.novelty.KernelMixes` adds these residuals to the predictions
for similar networks; far from all training networks its mean is zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Matrix, Names, Positions
from forerun.models.gaussian_process.covariances import matern
from forerun.models.gaussian_process.posterior import mean_weights

LENGTH = 0.1
"""Length scale: the distance at which the correlation of residuals is 1/e. With 0.1, errors of
eager runs beyond the device's offset fall from 7.5 to 6.9 % (RTX 3090 held out), from 8.4 to 7.6 %
(RTX 4090) and from 8.0 to 7.5 % (RTX PRO 6000), while errors on held-out families stay (5.9 and
5.9 %, compiled 7.1 and 7.2 %, on one fold of ten). With 0.3, the former fall by as much again on
the RTX PRO 6000 alone, and the latter rise to 6.8 and 7.4 %."""
NOISE = 0.2
"""Noise variance (a network's own residual, which no other shares) over that of the process."""
STEP = 1e-3
"""Positions and weights are rounded to multiples of this, so that a loaded process predicts exactly
as the fitted one."""
FARTHEST = 30.0
"""Positions are clipped to this absolute value; 16-bit multiples of `STEP` end at 32.8."""


@dataclass(frozen=True)
class Residuals:
    """The process of one execution mode.

    Attributes:
        position_steps: (k, d) positions of the training networks, one for each network and device,
            in multiples of `STEP`.
        weight_steps: (k,) dual weights, which are the inverse covariance times the residuals, in
            multiples of `STEP`.
    """

    position_steps: NDArray[np.int16]
    weight_steps: NDArray[np.int32]

    @classmethod
    def of(cls, positions: Matrix, residuals: Column) -> Self:
        """The posterior given k residuals in log units, at positions of shape (k, d)."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        steps = np.round(np.clip(positions, -FARTHEST, FARTHEST) / STEP).astype(np.int16)
        prior = cls(steps, np.zeros(len(steps), dtype=np.int32))
        covariance = prior._correlation(prior.positions)
        with threadpool_limits(1):
            weights = mean_weights(covariance, NOISE, residuals)
        return cls(steps, np.round(weights / STEP).astype(np.int32))

    @cached_property
    def positions(self) -> Matrix:
        """(k, d) positions of the training networks."""
        return np.asarray(self.position_steps * STEP, dtype=np.float64)

    @cached_property
    def weights(self) -> Column:
        """(k,) dual weights."""
        return np.asarray(self.weight_steps * STEP, dtype=np.float64)

    def at(self, positions: Matrix) -> Column:
        """Posterior mean of the residual at n positions, in log units, shape (n,)."""
        return np.asarray(self._correlation(positions) @ self.weights)

    def _correlation(self, positions: Matrix) -> Matrix:
        """exp(-distance / LENGTH) between n positions and those of the k training networks."""
        used, columns, squares = self._columns
        squared = (
            (positions**2).sum(axis=1)[:, None] + squares[None] - 2.0 * positions[:, used] @ columns
        )
        return matern(np.sqrt(np.maximum(squared, 0.0)) / LENGTH, 0.5)

    @cached_property
    def _columns(self) -> tuple[Positions, Matrix, Column]:
        """Columns that are not all zero, these columns transposed, and squared lengths, (k,)."""
        used = np.flatnonzero(self.positions.any(axis=0))
        columns = np.ascontiguousarray(self.positions[:, used].T)
        return used, columns, np.asarray((self.positions**2).sum(axis=1))


@dataclass(frozen=True)
class NetworkResiduals:
    """Residual processes by execution mode.

    Attributes:
        by_mode: execution mode -> its process.
    """

    by_mode: Mapping[str, Residuals] = field(default_factory=dict)

    @classmethod
    def fit(cls, positions: Matrix, residuals: Column, modes: Names, same: Positions) -> Self:
        """One process for each execution mode, from the residuals of n training rows.

        Args:
            positions: (n, d) positions.
            residuals: (n,) log(measured / predicted) by the boosters.
            modes: n execution modes.
            same: (n,) codes; rows of one mode with equal codes (one network on one device) are
                averaged.
        """
        processes = {}
        for mode in np.unique(modes):
            rows = np.flatnonzero(modes == mode)
            _, codes, counts = np.unique(same[rows], return_inverse=True, return_counts=True)
            mean = np.zeros((len(counts), positions.shape[1] + 1))
            np.add.at(mean, codes, np.column_stack([positions[rows], residuals[rows]]))
            mean /= counts[:, None]
            processes[str(mode)] = Residuals.of(mean[:, :-1], mean[:, -1])
        return cls(processes)

    def at(self, positions: Matrix, modes: Names) -> Column:
        """Posterior mean of the residual of n networks, in log units, shape (n,).

        Zero in an execution mode without training rows.
        """
        mean = np.zeros(len(positions))
        for mode, process in self.by_mode.items():
            rows = np.flatnonzero(modes == mode)
            if len(rows):
                mean[rows] = process.at(positions[rows])
        return mean
