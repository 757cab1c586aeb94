"""Lower limit of a kernel's time whatever its size, which dominates small batches.

A kernel cannot end before its first tile. One thread block computes a tile of a matrix product
along the whole inner dimension, so a product takes at least the time of one tile on one compute
unit, however few tiles there are; and no kernel is shorter than its start and end.
"""

import numpy as np

from forerun.data.shapes import Float64
from forerun.features.lowering import Kernels
from forerun.features.networks.features import Chip, Chips, peak_flops

SHORTEST_KERNEL_S = 2e-6
"""Seconds of the shortest kernel: the fastest of 814,611 matrix products on seven GPUs took 1.65
(L40S), 1.77 (B200) and 2.4 microseconds (A100, H100, H200), launched from recorded graphs
(AIConfigurator)."""

TENSOR_TILE, VECTOR_TILE = 64.0, 32.0
"""Rows and columns of the tile of a small product. On an A100 a half-precision product of 64 rows
takes 2.6 nanoseconds for each element of its inner dimension (the same tables), which is a tile of
64 x 64 on one unit; 32 x 32 without matrix units is assumed."""


def shortest_seconds(kernels: Kernels, chip: Chip | Chips) -> Float64[np.ndarray, "*devices n"]:
    """Lower limit of each kernel's time at any batch size, seconds, shape (n,).

    Args:
        kernels: n launched kernels.
        chip: the device at the run's precision, or c devices, for the shape (c, 1, n).
    """
    tile = np.where(kernels.tensor, TENSOR_TILE, VECTOR_TILE)
    rate = peak_flops(chip, kernels.tensor, kernels.is_conv) / chip.units
    one_tile = 2.0 * tile * tile * kernels.k / rate
    return np.asarray(SHORTEST_KERNEL_S + kernels.is_product * one_tile)
