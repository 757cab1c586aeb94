"""An expert in milliseconds: times as a linear function of counts, with a normal prior.

A cell's operations run one after another, so its time is close to a sum over them, while the
logarithm of that sum is not linear in the counts. The process is fitted to times over the mean of
the support set; its predictions become normal distributions of log times by linearisation (the
delta method), so that they mix with those of processes of log times.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.models.gaussian_process.covariances import Covariance
from forerun.models.gaussian_process.regression import Answer, GaussianProcessRegression

_LEAST = 0.1
"""Least predicted time over the mean of the support set, which keeps logarithms finite."""
_LARGEST_VARIANCE = 4.0
"""Largest variance of a log time: far from its mean the linearisation does not hold."""


@dataclass(frozen=True, eq=False)
class TimeExpert:
    """A process of times in milliseconds, whose predictions are of log times.

    Attributes:
        process: process of times over `mean_ms`.
        mean_ms: mean time of the support set, ms.
    """

    process: GaussianProcessRegression
    mean_ms: float

    @classmethod
    def fit(
        cls,
        covariances: tuple[Covariance, ...],
        rows: Matrix,
        latency_ms: Column,
        known_noise: Column,
    ) -> Self:
        """Fit the process to k measured times.

        Args:
            covariances: terms of the covariance, each with the prior of its weight.
            rows: standardised columns, shape (k, columns).
            latency_ms: k times, ms.
            known_noise: known variance of each log time, shape (k,).
        """
        mean_ms = float(latency_ms.mean())
        relative = latency_ms / mean_ms
        process = GaussianProcessRegression(covariances)
        return cls(process.fit(rows, relative, known_noise * relative**2), mean_ms)

    def predict(self, rows: Matrix) -> Answer:
        """Log times of m rows: means and variances of new measurements."""
        return self._logarithm(self.process.predict(rows))

    def leave_one_out(self) -> Answer:
        """Log time of each row of the support set from all others."""
        return self._logarithm(self.process.leave_one_out())

    def _logarithm(self, answer: Answer) -> Answer:
        mean = np.maximum(answer.mean, _LEAST)
        variance = np.minimum(answer.variance / mean**2, _LARGEST_VARIANCE)
        return Answer(np.log(mean * self.mean_ms), variance)
