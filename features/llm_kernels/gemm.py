"""Matrix products as a family of kernels: bounds, terms of their times and features."""

from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.kernel import ProductFormat
from forerun.features.llm_kernels.chip import ACTIVATION_BYTES, ARITHMETIC, WEIGHT_BYTES, Chip
from forerun.features.llm_kernels.table import KernelTable

TILES: Final = ((256, 128), (128, 128), (64, 128), (64, 64))
"""Rows and columns of the result that one compute unit makes at a time, in common libraries."""
COPIES: Final = 6
"""Sets of operands that AIConfigurator's benchmark uses in turn, so that the shared cache rarely
holds the next one (`outside_loop_count` of its collector)."""
_RESULT_BYTES = 2.0

PRODUCT_SIZES: Final = ("log_m", "log_n", "log_k")
GEMM_FEATURES: Final = (
    *PRODUCT_SIZES,
    "log_bound",
    "log_intensity_over_ridge",
    *(f"log_waves_{rows}x{columns}" for rows, columns in TILES),
    *(f"last_wave_{rows}x{columns}" for rows, columns in TILES),
    "log_weights_over_l2",
    "log_activations_over_l2",
    "log_result_over_l2",
    "log_bytes_over_l2",
    "m_fill_64",
    "m_fill_128",
    "m_alignment",
    "n_alignment",
    "k_alignment",
    "memory_over_bound",
)
LAUNCH_S: Final = 1.2e-6
"""Shorter than any kernel that was measured."""


def gemm_table(m: Column, n: Column, k: Column, form: ProductFormat, device: Device) -> KernelTable:
    """Products of (m, k) activations with (n, k) weights on one device.

    Args:
        m: (rows,) tokens.
        n: (rows,) outputs.
        k: (rows,) inputs.
        form: number format.
        device: where they run.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    peak = device.peak(ARITHMETIC[form], matrix=True) * 1e12
    weights, result = n * k * WEIGHT_BYTES[form], m * n * _RESULT_BYTES
    activations = m * k * ACTIVATION_BYTES[form]
    moved = weights + activations + result
    compute_s, memory_s = 2.0 * m * n * k / peak, moved / chip.bandwidth
    cached_s = chip.memory_s(moved, COPIES * moved)
    bound = np.maximum(compute_s, memory_s)
    waves = [np.ceil(m / rows) * np.ceil(n / columns) / chip.units for rows, columns in TILES]
    features = [
        *map(np.log2, (m, n, k)),
        np.log(bound * 1e6),
        np.log(compute_s / memory_s),
        *map(np.log, waves),
        *(wave / np.ceil(wave) for wave in waves),
        *(np.log(part / chip.l2_bytes) for part in (weights, activations, result, moved)),
        m / (np.ceil(m / 64) * 64),
        m / (np.ceil(m / 128) * 128),
        *map(_alignment, (m, n, k)),
        np.log(cached_s / memory_s),
    ]
    # Libraries read 16-bit activations to make those of fewer bits, in a kernel before.
    quantised_s = 2.0 * m * k / chip.bandwidth
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([k / chip.clock_hz, quantised_s]),
        parallel_s=np.column_stack([compute_s, cached_s]),
        launch=np.ones(len(bound)),
        least_s=np.maximum(compute_s, LAUNCH_S),
        site=n * 2.0**20 + k,
    )


def _alignment(size: Column) -> Column:
    """Largest power of two, up to 256, that divides each size, as its logarithm to base 2."""
    whole = np.asarray(size, dtype=np.int64)
    return np.asarray(np.log2(np.minimum(whole & -whole, 256)), dtype=np.float64)
