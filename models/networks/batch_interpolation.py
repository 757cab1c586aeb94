"""Batch sizes at which a fitted predictor is asked, and how its answers carry over to others.

Predictors of whole networks are trained on batches that fill the device. For smaller ones their
features leave the training range, while the kernels' own law
(`AdditiveLatencyModel.kernel_seconds`) still holds; so below the smallest batch that fills the
device the law alone says how time falls. Between powers of two the predictor's correction of the
law is interpolated, so that time never falls with the batch.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.features.lowering import Kernels
from forerun.features.networks.features import Chip
from forerun.models.networks.additive_model import AdditiveLatencyModel

FILLED_S = 5e-3
"""Time from which a device counts as filled: the shortest eager run on the GPUs of the timm
benchmark took 5.2 ms."""
_LARGEST_EXPONENT = 20
_USUAL_BATCH = 1024


class BatchLadder(NamedTuple):
    """Powers of two at which a query's network is priced.

    Attributes:
        lower, upper: batch sizes, equal where one suffices.
        weight: of the upper one, in the logarithm of the batch size.
    """

    lower: int
    upper: int
    weight: float


def rungs(batch_size: int, filled: int) -> BatchLadder:
    """Where a predictor is asked for a batch size.

    Args:
        batch_size: of the query.
        filled: smallest power of two that fills the device.
    """
    if batch_size <= filled:
        return BatchLadder(filled, filled, 0.0)
    exponent = float(np.log2(batch_size))
    low = int(np.floor(exponent))
    if 2**low == batch_size:
        return BatchLadder(batch_size, batch_size, 0.0)
    return BatchLadder(2**low, 2 ** (low + 1), exponent - low)


def filling_batch(times: AdditiveLatencyModel, kernels: Kernels, chip: Chip, way: str) -> int:
    """The smallest power of two whose kernels take `FILLED_S` by the law."""

    def fills(exponent: int) -> bool:
        return law_seconds(times, kernels, chip, 2**exponent, way) >= FILLED_S

    # Times are close to proportional to the batch from here down, so few steps lead there.
    usual = law_seconds(times, kernels, chip, _USUAL_BATCH, way)
    guess = int(np.log2(max(1.0, _USUAL_BATCH * FILLED_S / max(usual, 1e-12))))
    exponent = min(guess, _LARGEST_EXPONENT)
    while exponent < _LARGEST_EXPONENT and not fills(exponent):
        exponent += 1
    while exponent > 0 and fills(exponent - 1):
        exponent -= 1
    return int(2**exponent)


def law_seconds(
    times: AdditiveLatencyModel, kernels: Kernels, chip: Chip, batch_size: float, way: str
) -> float:
    """Seconds of all kernels by the law; it never falls with the batch size."""
    spent: NDArray[np.float64] = times.kernel_seconds(kernels, chip, float(batch_size), way)
    return float(spent.sum())
