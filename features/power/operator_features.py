"""Features of an operator's power: dimensionless ratios, and its draw at the roofline."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.shapes import Float64, Int
from forerun.data.workload import NumberFormat
from forerun.features.operators.kinds import IS_GEMM
from forerun.features.operators.query_table import gather
from forerun.features.operators.roofline import (
    COMPUTE_PRECISION,
    power_capped_tflops,
    roofline_ms,
    traffic_bytes,
)
from forerun.features.operators.table import OperatorTable

POWER_FEATURES = (
    "log_roofline",
    "log_intensity_over_ridge",
    "log_bytes_over_l2",
    "log_outputs_over_threads",
    "log_demand_over_headroom",
    "log_memory_over_headroom",
    "log_matrix_gain",
    "is_product",
    "log_groups",
    "kernel",
    "heavy",
    "is_rows",
)
"""`demand` is the power at the roofline, `headroom` the design power less the idle power;
`memory_over_headroom` compares full memory traffic with it: near one where fast memory meets a low
limit (A30, T4), near one half on graphics cards."""

BYTE_J = 150e-12
"""Energy per byte from device memory through the caches to the units. At this figure, full traffic
draws 140 W on an A30 and 92 W on an RTX 2080 Ti; ReLU on large tensors there draws 120 W and 55 W
above idle. The gradient-boosted model corrects the level, so an error of a third barely matters on
training devices."""

WAITING_SHARE = 0.2
"""Share of the TDP with clocks up and no kernel running. The lowest power in loops of tiny
kernels is 33 of 165 W (A30) and 52 of 250 W (RTX 2080 Ti)."""

_THREADS_PER_UNIT = 2048.0
_TYPICAL_UNITS, _TYPICAL_L2_MIB = 80, 6.0


@dataclass(frozen=True)
class PowerFeatures:
    """Operators of several queries, in the order of the queries.

    Attributes:
        matrix: (n, 12) features, columns as in `POWER_FEATURES`.
        base_w: (n,) dynamic power at the roofline, at most `headroom_w`.
        waiting_w: (n,) idle power of the device.
        headroom_w: (n,) design power less `waiting_w`.
        bound_ms: (n,) roofline time of one execution.
        time_ms: (n,) roofline time of all executions: the weight of an operator in its query.
        op_class: (n,) positions in `OPERATOR_CLASSES`.
        owner: (n,) position of the query.
    """

    matrix: Float64[np.ndarray, "n features"]
    base_w: Float64[np.ndarray, " n"]
    waiting_w: Float64[np.ndarray, " n"]
    headroom_w: Float64[np.ndarray, " n"]
    bound_ms: Float64[np.ndarray, " n"]
    time_ms: Float64[np.ndarray, " n"]
    op_class: Int[np.ndarray, " n"]
    owner: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.owner)

    def mean_over_time(
        self, values: Float64[np.ndarray, " n"], queries: int
    ) -> Float64[np.ndarray, " {queries}"]:
        """Time-weighted mean of operators' values per query, shape (queries,)."""
        weighted = np.bincount(self.owner, values * self.time_ms, queries)
        mean: Float64[np.ndarray, " queries"] = weighted / np.bincount(
            self.owner, self.time_ms, queries
        )
        return mean


def waiting_w(device: Device) -> float:
    """Idle power of a device: `idle_w`, else a fifth of the TDP.

    Raises:
        ValueError: the sheet has no design power.
    """
    if device.tdp_w is None:
        raise ValueError(f"{device.name} has no TDP")
    return min(device.idle_w or WAITING_SHARE * device.tdp_w, 0.9 * device.tdp_w)


def gather_power(queries: Sequence[Query]) -> PowerFeatures:
    """Features of all operators of all queries.

    Raises:
        UnknownPrecision: a device's sheet has no peak for a query's precision.
        ValueError: a device has no design power.
    """
    parts = [
        power_features(part.table, part.device, part.precision, part.owner)
        for part in gather(queries)
    ]
    if len(parts) == 1 and len(queries) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([p.owner for p in parts]), kind="stable")
    return PowerFeatures(
        **{
            f.name: np.concatenate([getattr(p, f.name) for p in parts])[order]
            for f in fields(PowerFeatures)
        }
    )


def power_features(
    table: OperatorTable, device: Device, precision: NumberFormat, owner: Int[np.ndarray, " n"]
) -> PowerFeatures:
    """Features of n operators on one device.

    Args:
        table: operators at their batch size.
        device: spec sheet with `tdp_w`; missing units or L2 are set to typical values.
        precision: number format of the run.
        owner: (n,) position of each operator's query.

    Raises:
        UnknownPrecision: the sheet has no peak for the precision.
        ValueError: the sheet has no design power.
    """
    arithmetic = COMPUTE_PRECISION[precision]
    matrix_peak = device.peak(arithmetic, matrix=True)
    vector_peak = device.peak_tflops.get("fp32", matrix_peak)
    product = IS_GEMM[table.kind]
    peak = np.where(product, matrix_peak, vector_peak) * 1e12
    bound = np.maximum(roofline_ms(table, device, precision), 1e-6)
    moved = np.maximum(traffic_bytes(table, precision), 1.0)
    flops = np.maximum(table.flops, 1.0)
    bandwidth = device.bandwidth_gbs * 1e9
    waiting = waiting_w(device)
    headroom = float(device.tdp_w or 0.0) - waiting
    full_matrix_w, full_vector_w = _arithmetic_w(device, precision, matrix_peak, vector_peak)
    busy = flops / (bound * 1e-3) / peak
    demand = np.where(product, full_matrix_w, full_vector_w) * busy
    demand += BYTE_J * moved / (bound * 1e-3)
    threads = (device.compute_units or _TYPICAL_UNITS) * _THREADS_PER_UNIT
    n = len(table)
    columns = (
        np.log(bound / 0.01),
        np.log(flops / moved / (peak / bandwidth)),
        np.log(moved / ((device.l2_mib or _TYPICAL_L2_MIB) * 2**20)),
        np.log(np.maximum(table.out_elements, 1.0) / threads),
        np.log(demand / headroom),
        np.full(n, np.log(BYTE_J * bandwidth / headroom)),
        np.where(product, np.log(matrix_peak / vector_peak), 0.0),
        product.astype(np.float64),
        np.log1p(table.batch),
        table.kernel,
        table.heavy,
        (table.rows > 0).astype(np.float64),
    )
    return PowerFeatures(
        matrix=np.stack(columns, axis=1),
        base_w=np.minimum(demand, headroom),
        waiting_w=np.full(n, waiting),
        headroom_w=np.full(n, headroom),
        bound_ms=bound,
        time_ms=bound * table.repeat,
        op_class=table.op_class,
        owner=owner,
    )


def _arithmetic_w(
    device: Device, precision: NumberFormat, matrix_peak: float, vector_peak: float
) -> tuple[float, float]:
    """Power of products and of other arithmetic at full rate without a power limit, watts.

    The limit over the rate it sustains is the energy per FLOP (`power_capped_tflops`); where the
    limit does not bind, full rate is assumed to draw the design power.
    """
    tdp = float(device.tdp_w or 0.0)
    fp32 = "fp32" if "fp32" in device.peak_tflops else COMPUTE_PRECISION[precision]
    matrix = tdp * matrix_peak / power_capped_tflops(device, COMPUTE_PRECISION[precision])
    vector = tdp * vector_peak / power_capped_tflops(device, fp32)
    return matrix, vector
