"""Which candidates to measure next: those that tell most about all the others.

Half are chosen greedily by how much measuring one lowers the summed variance of a Gaussian process
over the candidates (active learning after Cohn 1996; variances do not depend on what is measured),
half by the greatest variance left, which spreads to the ends of the space. The ends teach slopes
when times are noisy; the middle keeps the absolute error low.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.models.gaussian_process.regression import Covariance

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
MOST_CANDIDATES = 1500
ERRORS = (
    Covariance("constant"),
    Covariance("linear"),
    Covariance("radial", length=2.0 / 3.0),
    Covariance("radial", length=5.0 / 3.0),
)
ERROR_WEIGHTS = np.array([0.04, 0.03, 0.02, 0.02])
ERROR_NOISE = 0.02
"""What a predictor's error on a new device is like."""


def suggest(
    rows: Matrix,
    kernels: Sequence[Covariance],
    weights: Vector,
    noise: float,
    count: int,
    seed: int,
    spread: float = 0.5,
) -> list[int]:
    """Positions of `count` different rows to measure, the most telling first.

    Args:
        rows: standardised candidates, shape (n, columns); more than 1,500 are thinned by the seed.
        kernels: of the process that will be fitted.
        weights: of the kernels before anything is measured.
        noise: variance of one measurement.
        count: how many; all when there are fewer candidates.
        seed: which candidates are looked at; ties fall by their order.
        spread: share chosen by the greatest variance left.
    """
    generator = np.random.default_rng(seed)
    looked = generator.permutation(len(rows))[:MOST_CANDIDATES]
    some = rows[looked]
    covariance = np.zeros((len(some), len(some)))
    for weight, kernel in zip(weights, kernels, strict=True):
        covariance += weight * kernel.between(some, some)
    chosen: list[int] = []
    free = np.ones(len(some), dtype=np.bool_)
    for step in range(min(count, len(some))):
        variance = np.maximum(np.diag(covariance), 0.0)
        greatest = int((step + 1) * spread) > int(step * spread)
        gain = variance if greatest else (covariance**2).sum(axis=0) / (variance + noise)
        best = int(np.argmax(np.where(free, gain, -np.inf)))
        column = covariance[:, best] / np.sqrt(variance[best] + noise)
        covariance -= np.outer(column, column)
        free[best] = False
        chosen.append(int(looked[best]))
    return chosen


def suggest_for_errors(features: Matrix, count: int, seed: int = 0) -> list[int]:
    """Positions of `count` rows whose measurement tells most of a predictor's error on a device.

    All are chosen by how much they lower the summed variance. Rows at the ends of the space, which
    `suggest` mixes in for slopes, are left out: with half of them the choice lost to random draws
    on networks (RTX 3090: 9.97 against 9.85 % with 5 models, 9.58 against 9.00 with 10) and on
    linear layers (28.9 against 24.3 % with 5). Without them 5 and 10 of 100 models give 9.5 and 9.0
    on RTX 3090 (random 9.9 and 9.0), 10.6 and 10.1 on RTX 4090 (random 13.0 and 11.0), and 5 of 300
    operators 19.5, 22.0 and 10.0 % on batched products, linear and elementwise (random 21.4, 24.3
    and 11.9; P4, P100, V100, T4 left out).

    Args:
        features: candidates by `Standardizer`, shape (n, columns).
        count: how many; all when there are fewer candidates.
        seed: which candidates are looked at where there are very many.
    """
    return suggest(features, ERRORS, ERROR_WEIGHTS, ERROR_NOISE, count, seed, spread=0.0)
