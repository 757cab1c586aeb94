"""Several experts weighted by how well each foretells the few measured rows, left out one by one.

Stacking of predictive densities (Yao et al. 2018): the weights maximise the summed log of the
mixture's density at the left-out rows, with a Dirichlet prior that keeps a say for each, because
twenty rows cannot rule an expert out. Never a single winner: where the pool of known hardware is
unlike the new, the experts that lean on it lose their weight by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.models.adaptation.expert_weights import combine
from forerun.models.gaussian_process.regression import Answer

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

PRIOR_ROWS: Final = 1.0
"""Rows' worth of belief that all experts are equal, beside the measured ones."""
_STEPS = 200


def stacking_weights(log_densities: Matrix, prior_rows: float = PRIOR_ROWS) -> Vector:
    """Weights of e experts that sum to one, shape (e,).

    Args:
        log_densities: log density of each expert at each left-out row, shape (e, n).
        prior_rows: rows' worth of belief in equal weights.
    """
    experts = len(log_densities)
    density = np.exp(log_densities - log_densities.max(axis=0))
    weights = np.full(experts, 1.0 / experts)
    for _ in range(_STEPS):
        share = weights[:, None] * density
        share /= share.sum(axis=0)
        weights = share.sum(axis=1) + prior_rows / experts
        weights /= weights.sum()
    return weights


def mixed(answers: Sequence[Answer], weights: Vector) -> Answer:
    """Mean and variance of the mixture; experts that disagree widen it."""
    means = np.array([answer.mean for answer in answers])
    return Answer(*combine(weights, means, np.array([answer.variance for answer in answers])))


@dataclass(frozen=True)
class Stacking:
    """Weights of experts, and how much wider than they say their intervals must be.

    Attributes:
        weights: of e experts, shape (e,).
        inflation: factor on the mixture's variance.
        freedom: degrees of freedom of the Student t that gives the intervals.
    """

    weights: Vector
    inflation: float
    freedom: float

    @classmethod
    def of(
        cls,
        left_out: Sequence[Answer],
        measured: Vector,
        prior_rows: float = PRIOR_ROWS,
        trust: float = 8.0,
    ) -> "Stacking":
        """Weights and inflation from each expert's answers for rows left out.

        Args:
            left_out: e answers for n rows, each as if the row had not been measured.
            measured: n values.
            prior_rows: as in `stacking_weights`.
            trust: rows' worth of belief that the variances are right as they are.
        """
        weights = stacking_weights(
            np.array([answer.log_density(measured) for answer in left_out]), prior_rows
        )
        joint = mixed(left_out, weights)
        square = (measured - joint.mean) ** 2 / joint.variance
        # One wild row among twenty must not widen every interval.
        square = np.minimum(square, 9.0)
        inflation = (trust + float(square.sum())) / (trust + len(measured))
        return cls(weights, inflation, trust + len(measured))

    def combine(self, answers: Sequence[Answer]) -> Answer:
        """The mixture's answer, its variance inflated."""
        joint = mixed(answers, self.weights)
        return Answer(joint.mean, joint.variance * self.inflation)

    def half_width(self, answer: Answer, coverage: float = 0.9) -> Vector:
        """Distance from a combined answer's mean to either bound, shape (n,)."""
        from scipy.special import stdtrit

        return np.asarray(stdtrit(self.freedom, 0.5 + coverage / 2) * np.sqrt(answer.variance))
