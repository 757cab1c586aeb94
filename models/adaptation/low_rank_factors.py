"""Low-rank factors of the log times of common workloads on known devices.

A matrix of log times (workloads x devices) with centred columns has few large singular values
(launch-bound, compute-bound, memory-bound, ...). The log times on a new device are modelled as a
linear combination of the factors: a Gaussian process with a linear covariance over the factors
(`forerun.models.gaussian_process.regression`) is a normal prior over its coefficients.
"""

from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column, Matrix


@dataclass(frozen=True)
class LowRankFactors:
    """Factors of known devices' log times.

    Attributes:
        levels: mean log time of each of d devices, shape (d,).
        projection: maps the d centred log times of a workload to its factors, shape (d, rank).
        scales: standard deviation of each factor over the workloads, shape (rank,). All factors
            are divided by the first of these, so that their variances stay proportional to what
            they explain.
    """

    levels: Column
    projection: Matrix
    scales: Column

    @classmethod
    def of(cls, log_times: Matrix, rank: int) -> "LowRankFactors":
        """Factors by singular value decomposition.

        Args:
            log_times: shape (workloads, devices), without NaN; missing or noisy measurements have
                to be smoothed beforehand.
            rank: largest number of factors.
        """
        levels = log_times.mean(axis=0)
        _, singular, right = np.linalg.svd(log_times - levels, full_matrices=False)
        kept = min(rank, int((singular > 1e-9 * max(singular[0], 1e-300)).sum()))
        scales = singular[:kept] / np.sqrt(len(log_times))
        return cls(levels, right[:kept].T, scales)

    def factors(self, log_times: Matrix) -> Matrix:
        """Factors of n workloads, shape (n, rank), from log times on the known devices, (n, d)."""
        return np.asarray((log_times - self.levels) @ self.projection / self.scales[0])
