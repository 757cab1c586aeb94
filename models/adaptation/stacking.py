"""Stacking of predictive densities (Yao et al. 2018): weights from leave-one-out predictions.

The weights maximise the summed log density of the mixture at the held-out rows, with a Dirichlet
prior that keeps every weight above zero, because twenty rows cannot rule out an expert. No expert
is selected: where the known hardware is unlike the new device, the experts that depend on it get
low weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column
from forerun.models.gaussian_process.mixture import PRIOR_ROWS, combine, stacking_weights
from forerun.models.gaussian_process.regression import Answer


def mixed(answers: Sequence[Answer], weights: Column) -> Answer:
    """Mean and variance of the mixture, which include the disagreement of the experts.

    Args:
        answers: predictions of e experts for n rows.
        weights: weights that add up to 1, shape (e,).
    """
    means = np.array([answer.mean for answer in answers])
    return Answer(*combine(weights, means, np.array([answer.variance for answer in answers])))


@dataclass(frozen=True)
class Stacking:
    """Weights of experts, and a calibration of the mixture's variance.

    Attributes:
        weights: weights of e experts, shape (e,).
        inflation: factor on the mixture's variance.
        freedom: degrees of freedom of the Student t distribution of intervals.
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
        # Clipped, so that one outlier among twenty rows does not widen every interval.
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
