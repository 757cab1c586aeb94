"""Batch sizes at which a fitted predictor is evaluated, and interpolation to other batch sizes.

Predictors of whole networks are trained on batches that fill the device. At smaller batches their
features leave the training range, while the sum over kernels
(`AdditiveLatencyModel.kernel_seconds`, "the law" below) still holds. So below the smallest batch
that fills the device, the law alone scales the time. Between powers of two, the predictor's
correction of the law is interpolated, so that the time never falls with the batch size.
"""

from collections.abc import Mapping

import numpy as np

from forerun.data.columns import Column
from forerun.features.lowering import Kernels
from forerun.features.networks.features import Chip
from forerun.models.networks.additive_model import AdditiveLatencyModel

FILLED_S = 5e-3
"""Seconds of kernel time from which a device counts as filled: the shortest eager run on the GPUs
of the timm benchmark took 5.2 ms."""
_LARGEST_EXPONENT = 20
_USUAL_BATCH = 1024


def batch_ladder(batch_size: int, filled: int) -> Mapping[int, float]:
    """The batch sizes at which a predictor is evaluated for a query, with interpolation weights.

    They are the neighbouring powers of two, and their weights are linear in the logarithm of the
    batch size and add up to 1. One batch size is enough where the query has a power of two, or
    where its batch does not fill the device.

    Args:
        batch_size: batch size of the query.
        filled: smallest power of two that fills the device.
    """
    if batch_size <= filled:
        return {filled: 1.0}
    exponent = float(np.log2(batch_size))
    low = int(np.floor(exponent))
    if 2**low == batch_size:
        return {batch_size: 1.0}
    return {2**low: 1.0 - (exponent - low), 2 ** (low + 1): exponent - low}


def filling_batch(times: AdditiveLatencyModel, kernels: Kernels, chip: Chip, mode: str) -> int:
    """The smallest power of two whose kernels take `FILLED_S` or longer, at most 2**20."""

    def fills(exponent: int) -> bool:
        return law_seconds(times, kernels, chip, 2**exponent, mode) >= FILLED_S

    # Below this batch size, times are nearly proportional to it, so the search takes few steps.
    usual = law_seconds(times, kernels, chip, _USUAL_BATCH, mode)
    guess = int(np.log2(max(1.0, _USUAL_BATCH * FILLED_S / max(usual, 1e-12))))
    exponent = min(guess, _LARGEST_EXPONENT)
    while exponent < _LARGEST_EXPONENT and not fills(exponent):
        exponent += 1
    while exponent > 0 and fills(exponent - 1):
        exponent -= 1
    return int(2**exponent)


def law_seconds(
    times: AdditiveLatencyModel, kernels: Kernels, chip: Chip, batch_size: float, mode: str
) -> float:
    """Summed seconds of all kernels at a batch size; never falls with the batch size."""
    seconds: Column = times.kernel_seconds(kernels, chip, float(batch_size), mode)
    return float(seconds.sum())
