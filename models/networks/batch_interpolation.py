"""Batch sizes at which a fitted predictor is evaluated, and interpolation to other batch sizes.

Predictors of whole networks are trained on batches that fill the device. At smaller batches their
features leave the training range, while the sum over kernels
(`AdditiveLatencyModel.kernel_seconds`, "the law" below) still holds. So below the smallest batch
that fills the device, the law alone scales the time. Between powers of two, the predictor's
correction of the law is interpolated, so that the time never falls with the batch size.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.features.lowering import Kernels
from forerun.features.networks.features import Chip, Chips
from forerun.models.networks.additive_model import AdditiveLatencyModel

FILLED_S = 5e-3
"""Seconds of kernel time from which a device counts as filled: the shortest eager run on the GPUs
of the timm benchmark took 5.2 ms."""
POWERS = tuple(2**exponent for exponent in range(21))
_MOST_TIMES = 1_000_000
"""Times of kernels that are in memory at once."""


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


def filling_batch(seconds_of_powers: Mapping[int, float]) -> int:
    """The smallest power of two whose kernels take `FILLED_S` or longer, at most 2**20.

    Args:
        seconds_of_powers: batch size -> `law_seconds`, for each of `POWERS` at least.
    """
    return next((int(b) for b in POWERS if seconds_of_powers[b] >= FILLED_S), 2**20)


def law_seconds(
    times: AdditiveLatencyModel,
    kernels: Kernels,
    chips: Sequence[Chip],
    batch_sizes: Column,
    mode: str,
) -> Matrix:
    """Summed seconds of all kernels, which never fall with the batch size, shape (c, b).

    Args:
        times: coefficients of the kernels' times.
        kernels: launched kernels.
        chips: c devices at the run's precision.
        batch_sizes: (b,) samples in one run.
        mode: execution mode.
    """
    seconds = np.empty((len(chips), len(batch_sizes)))
    most = max(1, _MOST_TIMES // max(1, len(kernels)))
    columns = max(1, min(len(batch_sizes), most))
    rows = max(1, most // columns)
    for first in range(0, len(chips), rows):
        some = Chips.of(chips[first : first + rows])
        for start in range(0, len(batch_sizes), columns):
            part = batch_sizes[start : start + columns]
            each = times.kernel_seconds(kernels, some, part, mode)
            seconds[first : first + rows, start : start + columns] = each.sum(axis=-1)
    return seconds
