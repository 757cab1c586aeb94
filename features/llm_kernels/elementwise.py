"""Operations that memory traffic bounds, as a family of kernels."""

from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.kernel import ElementwiseName
from forerun.features.llm_kernels.chip import Chip
from forerun.features.llm_kernels.gemm import LAUNCH_S
from forerun.features.llm_kernels.table import KernelTable

TRAFFIC: Final[dict[ElementwiseName, float]] = {
    "norm": 2.0,
    "rotary": 2.0,
    "activation": 3.0,
    "add": 3.0,
    "embedding": 2.0,
}
"""Values that each operation reads and writes for one value of its result."""
ELEMENTWISE_FEATURES: Final = (
    "log_tokens",
    "log_width",
    "alignment",
    "log_bound",
    "log_bytes_over_l2",
    "log_rows_over_units",
    "memory_over_bound",
)
_BYTES = 2.0


def elementwise_table(
    tokens: Column, width: Column, operation: ElementwiseName, device: Device
) -> KernelTable:
    """One operation at n sizes on one device.

    Args:
        tokens: (n,) rows.
        width: (n,) values of one row of the result.
        operation: what is computed.
        device: where it runs.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    moved = TRAFFIC[operation] * tokens * width * _BYTES
    bound = moved / chip.bandwidth
    cached_s = chip.memory_s(moved, moved)
    whole = np.asarray(width, dtype=np.int64)
    features = [
        np.log2(tokens),
        np.log2(width),
        np.log2(np.minimum(whole & -whole, 256)),
        np.log(bound * 1e6),
        np.log(moved / chip.l2_bytes),
        np.log(tokens / chip.units),
        np.log(cached_s / bound),
    ]
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([tokens / chip.units / chip.clock_hz]),
        parallel_s=np.column_stack([cached_s]),
        launch=np.ones(len(bound)),
        least_s=np.full(len(bound), LAUNCH_S),
        site=np.asarray(width, dtype=np.float64),
    )
