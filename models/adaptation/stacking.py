"""Experts for a new device: factors of known devices, and stacking of several experts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.models.gaussian_process.regression import PRIOR_ROWS, Answer, combine, stacking_weights


@dataclass(frozen=True)
class LowRankFactors:
    """Principal factors of known devices' log times.

    A matrix of log times (workloads x devices) with centred columns has few large singular values
    (launch-bound, compute-bound, memory-bound, ...). Log times on a new device are modelled as a
    linear combination of the factors: a Gaussian process with a linear covariance over the factors
    (`forerun.models.gaussian_process.regression`) is a normal prior on its coefficients.

    Attributes:
        levels: mean log time of each of d devices, shape (d,).
        projection: maps the d centred log times of a workload to its factors, shape (d, rank).
        scales: standard deviation of each factor over the workloads, shape (rank,). All factors
            are divided by the first of these, which keeps their variances proportional to what
            they explain.
    """

    levels: Column
    projection: Matrix
    scales: Column

    @classmethod
    def of(cls, log_times: Matrix, rank: int) -> "LowRankFactors":
        """Factors from a singular value decomposition.

        Args:
            log_times: shape (workloads, devices), without NaN; smooth missing or noisy measurements
                beforehand.
            rank: maximum number of factors.
        """
        levels = log_times.mean(axis=0)
        _, singular, right = np.linalg.svd(log_times - levels, full_matrices=False)
        kept = min(rank, int((singular > 1e-9 * max(singular[0], 1e-300)).sum()))
        scales = singular[:kept] / np.sqrt(len(log_times))
        return cls(levels, right[:kept].T, scales)

    def factors(self, log_times: Matrix) -> Matrix:
        """Factors of n workloads, shape (n, rank), from log times on the known devices, (n, d)."""
        return np.asarray((log_times - self.levels) @ self.projection / self.scales[0])


def mixed(answers: Sequence[Answer], weights: Column) -> Answer:
    """Mean and variance of the mixture, including the disagreement between experts.

    Args:
        answers: predictions of e experts for n rows.
        weights: weights that add up to 1, shape (e,).
    """
    means = np.array([answer.mean for answer in answers])
    return Answer(*combine(weights, means, np.array([answer.variance for answer in answers])))


@dataclass(frozen=True)
class Stacking:
    """Weights of experts, and a calibration of the mixture's variance.

    Stacking of predictive densities (Yao et al. 2018): the weights maximise the summed log density
    of the mixture at the held-out rows. A Dirichlet prior keeps every weight above zero, because
    twenty rows cannot rule out an expert. No expert is selected outright: where the known hardware
    is unlike the new device, experts that depend on it get low weights.

    Attributes:
        weights: weights of e experts, shape (e,).
        inflation: factor on the mixture's variance.
        freedom: degrees of freedom of the intervals' Student t distribution.
    """

    weights: Column
    inflation: float
    freedom: float

    @classmethod
    def of(
        cls,
        left_out: Sequence[Answer],
        measured: Column,
        prior_rows: float = PRIOR_ROWS,
        variance_rows: float = 8.0,
    ) -> "Stacking":
        """Weights and inflation from leave-one-out predictions of each expert.

        Args:
            left_out: leave-one-out predictions of e experts for n rows.
            measured: n measured values.
            prior_rows: as in `stacking_weights`.
            variance_rows: pseudo-observations with an inflation of 1.
        """
        weights = stacking_weights(
            np.array([answer.log_density(measured) for answer in left_out]), prior_rows
        )
        joint = mixed(left_out, weights)
        square = (measured - joint.mean) ** 2 / joint.variance
        # Clipped so that one outlier among twenty rows does not widen every interval.
        square = np.minimum(square, 9.0)
        inflation = (variance_rows + float(square.sum())) / (variance_rows + len(measured))
        return cls(weights, inflation, variance_rows + len(measured))

    def combine(self, answers: Sequence[Answer]) -> Answer:
        """The mixture's mean and inflated variance."""
        joint = mixed(answers, self.weights)
        return Answer(joint.mean, joint.variance * self.inflation)

    def half_width(self, answer: Answer, coverage: float = 0.9) -> Column:
        """Half-width of the interval around a combined prediction, shape (n,)."""
        from scipy.special import stdtrit

        return np.asarray(stdtrit(self.freedom, 0.5 + coverage / 2) * np.sqrt(answer.variance))
