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
        seconds_of_powers: `law_of_powers`.
    """
    return next((b for b, s in seconds_of_powers.items() if s >= FILLED_S), POWERS[-1])


def law_of_powers(
    times: AdditiveLatencyModel, kernels: Kernels, chip: Chip, mode: str
) -> Mapping[int, float]:
    """Batch size -> `law_seconds`, for each of `POWERS`."""
    batch_sizes = np.array(POWERS, dtype=np.float64)
    seconds = law_seconds(times, kernels, chip, batch_sizes, mode)
    return dict(zip(POWERS, seconds.tolist(), strict=True))


def law_seconds(
    times: AdditiveLatencyModel, kernels: Kernels, chip: Chip, batch_sizes: Column, mode: str
) -> Column:
    """Summed seconds of all kernels, which never fall with the batch size, shape (b,).

    Args:
        times: coefficients of the kernels' times.
        kernels: launched kernels.
        chip: the device at the run's precision.
        batch_sizes: (b,) samples in one run.
        mode: execution mode.
    """
    step = max(1, _MOST_TIMES // max(1, len(kernels)))
    parts = [batch_sizes[start : start + step] for start in range(0, len(batch_sizes), step)]
    return np.concatenate(
        [times.kernel_seconds(kernels, chip, part, mode).sum(axis=1) for part in parts]
    )
