"""What known hardware measured of the same workloads, as a few factors that a new one mixes.

A matrix of log times (workloads x devices), each column centred, has few large singular values
(launch-bound, compute-bound, memory-bound, ...). A new device is a point in their space: a prior
over its coordinates comes from those of the known ones, and a linear kernel over the factors is
that prior (models.adaptation.kernel_process).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class LowRank:
    """Factors of known devices' log times.

    Attributes:
        levels: mean log time of each of d devices, shape (d,).
        projection: from d centred log times of a workload to its factors, shape (d, rank).
        scales: deviation of each factor over the workloads, shape (rank,); factors are divided by
            the first, so that later ones count for as little as they explain.
    """

    levels: Vector
    projection: Matrix
    scales: Vector

    @classmethod
    def of(cls, log_times: Matrix, rank: int) -> "LowRank":
        """Factors of complete log times, shape (workloads, devices).

        Args:
            log_times: without gaps; smooth them first where measurements are missing or noisy.
            rank: most factors to keep.
        """
        levels = log_times.mean(axis=0)
        _, singular, right = np.linalg.svd(log_times - levels, full_matrices=False)
        kept = min(rank, int((singular > 1e-9 * max(singular[0], 1e-300)).sum()))
        scales = singular[:kept] / np.sqrt(len(log_times))
        return cls(levels, right[:kept].T, scales)

    def factors(self, log_times: Matrix) -> Matrix:
        """Factors of n workloads from their log times on the known devices, shape (n, rank)."""
        return np.asarray((log_times - self.levels) @ self.projection / self.scales[0])

    def back(self, factors: Matrix) -> Matrix:
        """Log times on the known devices from factors, shape (n, devices)."""
        return np.asarray(self.levels + factors * self.scales[0] @ self.projection.T)
