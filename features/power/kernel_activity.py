"""Expected times of operators on a GPU, and the share of its arithmetic units that they fill.

A roofline is a lower bound: streaming kernels come close to it, depthwise convolutions take three
times as long, and every launch takes a few microseconds. Power depends on the actual time, and on
the units that have work: a kernel with fewer threads than the chip holds leaves units idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.shapes import Float64, Int
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE
from forerun.features.operators.table import OperatorTable

EFFICIENCY: Final[Mapping[str, float]] = {
    "product": 0.75,
    "depthwise": 0.35,
    "normalization": 0.6,
    "row_normalization": 0.65,
    "streaming": 1.0,
    "pooling": 0.5,
    "reduction": 1.0,
}
"""Activity class -> roofline time over measured time of long kernels. Rounded from latencies of
torch_op_energy's operators, A30 and RTX 2080 Ti: 0.75 and 0.79 (dense products and convolutions in
fp32), 0.31 and 0.41 (grouped convolutions), 0.69 and 0.49 (batch norm, whose statistics are a
second pass), 0.61 and 0.83 (layer norm, softmax), 1.1 and 1.4 (elementwise, copies; outputs that
stay in the cache beat the bound), 0.42 and 0.67 (pooling), 1.0 and 1.4 (reductions). No power was
looked at for these figures."""
ACTIVITIES: Final = tuple(EFFICIENCY)
LAUNCH_S: Final = 3e-6
"""Between the start of one kernel and the next in a queue that never runs dry: the least time of
tiny products in captured graphs on H200 and B200 is 2 to 3 microseconds (AIConfigurator)."""
TILE: Final = 64.0
"""Rows and columns of an output tile that one compute unit works on."""
THREADS_PER_UNIT: Final = 2048.0
"""Threads resident on a compute unit, one per output element."""

_KINDS: Final = {
    "batch_norm": "normalization",
    "group_norm": "row_normalization",
    "layer_norm": "row_normalization",
    "softmax": "row_normalization",
    "elementwise": "streaming",
    "copy": "streaming",
    "embedding": "streaming",
    "resize": "streaming",
    "unknown": "streaming",
    "pool": "pooling",
    "reduce": "reduction",
}
_PLACE: Final = {name: place for place, name in enumerate(ACTIVITIES)}
_CLASS_OF_KIND = np.array([_PLACE[_KINDS.get(name, "product")] for name in KIND_CODE])
_EFFICIENCY = np.array(list(EFFICIENCY.values()))


@dataclass(frozen=True)
class KernelActivity:
    """n operators on one device, or on each of c devices.

    Attributes:
        activity: (n,) positions in `ACTIVITIES`.
        seconds: (n,) or (c, n) expected time on the device.
        filled: (n,) or (c, n) share of the arithmetic units that have work, 0 to 1.
    """

    activity: Int[np.ndarray, " n"]
    seconds: Float64[np.ndarray, "*c n"]
    filled: Float64[np.ndarray, "*c n"]


def kernel_activity(
    table: OperatorTable,
    roofline_s: Float64[np.ndarray, "*c n"],
    units: Float64[np.ndarray, "*c one"] | float,
) -> KernelActivity:
    """Time and occupation of n operators, each alone on a device.

    Args:
        table: n operators at their batch size.
        roofline_s: (n,) their lower bound, seconds; (c, n) on c devices.
        units: compute units of the device; (c, 1) of c devices.
    """
    grouped = (table.batch > 1) & ((table.kernel > 1) | (table.k <= 1))
    depthwise = grouped & (table.kind == KIND_CODE["conv"])
    activity = np.where(depthwise, _PLACE["depthwise"], _CLASS_OF_KIND[table.kind])
    seconds = roofline_s / _EFFICIENCY[activity] + LAUNCH_S
    tiles = np.maximum(table.batch, 1.0)
    for side in (table.m, table.n):
        tiles = tiles * np.ceil(np.maximum(side, 1.0) / TILE)
    products = IS_GEMM[table.kind] & ~depthwise
    waves = np.where(products, tiles, table.out_elements / THREADS_PER_UNIT) / units
    return KernelActivity(activity, seconds, 1.0 - np.exp(-waves))
