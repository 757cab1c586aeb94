"""Time of a kernel that does not fill the device, which dominates small batches.

A kernel cannot end before its first tile. One thread block computes a tile of a matrix product
along the whole inner dimension, so a product takes at least the time of one tile on one compute
unit, however few tiles there are, and every step of that loop waits for its operands.
"""

import numpy as np

from forerun.data.shapes import Float64
from forerun.features.lowering import Kernels
from forerun.features.networks.features import Chip, Chips, peak_flops

SHORTEST_KERNEL_S = 2e-6
"""Seconds of the shortest kernel: the fastest of 814,611 matrix products on seven GPUs took 1.65
(L40S), 1.77 (B200) and 2.4 microseconds (A100, H100, H200), launched from recorded graphs
(AIConfigurator)."""

SMALL_KERNEL_S = 2.4e-6
"""Seconds of a small kernel that only moves data, with the gap to the next one in a recorded graph.

This and the next four constants are a non-negative least-squares fit, of relative errors, to 54
networks of `torch_gpu` at batch size 1 on an H100 and an H200 (torch 2.11, 0.1 to 3.5 ms)."""
SMALL_PRODUCT_S, SMALL_CONVOLUTION_S = 1.1e-6, 2.1e-6
"""Seconds that a small matrix product or a small convolution takes beyond that."""
PRODUCT_STEP_S, CONVOLUTION_STEP_S = 5.6e-9, 8.4e-9
"""Seconds for each element of the inner dimension of a product or of a convolution."""

TENSOR_TILE, VECTOR_TILE = 64.0, 32.0
"""Rows and columns of the tile of a small product on matrix units, and without them."""


def small_batch_seconds(kernels: Kernels, chip: Chip | Chips) -> Float64[np.ndarray, "*devices n"]:
    """Seconds that each kernel takes however small the batch is, shape (n,).

    Args:
        kernels: n launched kernels.
        chip: the device at the run's precision, or c devices, for the shape (c, 1, n).
    """
    tile = np.where(kernels.tensor, TENSOR_TILE, VECTOR_TILE)
    rate = peak_flops(chip, kernels.tensor, kernels.is_conv) / chip.units
    one_tile = 2.0 * tile * tile * kernels.k / rate
    start = np.where(kernels.is_conv, SMALL_CONVOLUTION_S, SMALL_PRODUCT_S)
    steps = kernels.k * np.where(kernels.is_conv, CONVOLUTION_STEP_S, PRODUCT_STEP_S)
    product = kernels.is_product * (start + np.maximum(one_tile, steps))
    return np.asarray(SMALL_KERNEL_S + product)
