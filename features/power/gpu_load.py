"""The load of runs on a GPU: utilisation of arithmetic and memory, and figures of the board.

Shares are relative to the expected device time and linear in the operators' work, so that a
network's load is the time-weighted mean of its operators' loads.

The expected time of an operator exceeds its roofline bound: streaming kernels come close to it,
depthwise convolutions take three times as long, and every launch takes a few microseconds. Power
depends on this time and on the busy units: a kernel with fewer threads than the chip holds leaves
units idle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Columns
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.shapes import Float64, Int
from forerun.data.workload import NumberFormat
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE, KINDS
from forerun.features.operators.query_table import gather_devices
from forerun.features.operators.roofline import COMPUTE_PRECISION, is_graphics, traffic_bytes
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
stay in the cache beat the bound), 0.42 and 0.67 (pooling), 1.0 and 1.4 (reductions). Measured power
played no part in these figures."""
ACTIVITIES: Final = tuple(EFFICIENCY)
LAUNCH_S: Final = 3e-6
"""Time between kernel starts in a queue that never runs dry: the shortest tiny products in captured
graphs on H200 and B200 take 2 to 3 microseconds (AIConfigurator)."""
TILE: Final = 64.0
"""Rows and columns of an output tile computed by one compute unit."""
THREADS_PER_UNIT: Final = 2048.0
"""Threads resident on a compute unit, one per output element."""

_PLACE: Final = {name: place for place, name in enumerate(ACTIVITIES)}
_CLASS_OF_KIND = np.array([_PLACE[kind.activity] for kind in KINDS])
_EFFICIENCY = np.array(list(EFFICIENCY.values()))


@dataclass(frozen=True)
class KernelActivity:
    """n operators on one device, or on each of c devices.

    Attributes:
        activity: (n,) positions in `ACTIVITIES`.
        seconds: (n,) or (c, n) expected time on the device.
        filled: (n,) or (c, n) share of the arithmetic units that are busy, 0 to 1.
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


SHORTEST_S = 1e-10
LANES_PER_UNIT = 64.0
"""Lanes of a compute unit, each with one multiply-add per cycle: P100, V100, A100 and all of AMD's
data-centre GPUs. It replaces units and clock where a sheet lacks either."""
TYPICAL_GHZ = 1.5
"""Assumed highest clock of a GPU whose sheet gives neither clock nor units; between P100 (1.3) and
H100 (2.0)."""
CARRIED_GBS = 1150.0
"""Upper limit of the bandwidth that draws power, per unit of `issue_rate`: boards of one chip with
faster memory (H100 and H200, A100 of 40 and 80 GB) are taken to draw the same. P100, V100 and A30
have 800 to 1,160, H100 1,280, H200 1,840, B200 2,650; chosen so that A100 of 40 and 80 GB differ by
less than 10 %. Errors on held-out GPUs barely depend on it."""


@dataclass(frozen=True)
class GpuLoad(Columns):
    """n runs, each on its device.

    Attributes:
        arithmetic: (n,) mean arithmetic rate over its peak, while the device is busy.
        memory: (n,) mean traffic over full bandwidth, while the device is busy.
        occupied: (n, classes) share of the time in each class of `ACTIVITIES`.
        filled: (n, classes) the same, times the share of busy units.
        device_s: (n,) expected device time of one run, seconds.
        issue_rate: (n,) compute units times highest clock, 1e11 per second: the rate at which the
            board's silicon can switch.
        bandwidth_gbs: (n,) memory bandwidth that the chip can use, 1e9 bytes/s.
        tdp_w: (n,) design power, W.
        idle_w: (n,) idle power on the sheet, W; NaN if missing.
        graphics: (n,) 1 for graphics boards, 0 for compute boards.
    """

    arithmetic: Float64[np.ndarray, " n"]
    memory: Float64[np.ndarray, " n"]
    occupied: Float64[np.ndarray, "n classes"]
    filled: Float64[np.ndarray, "n classes"]
    device_s: Float64[np.ndarray, " n"]
    issue_rate: Float64[np.ndarray, " n"]
    bandwidth_gbs: Float64[np.ndarray, " n"]
    tdp_w: Float64[np.ndarray, " n"]
    idle_w: Float64[np.ndarray, " n"]
    graphics: Float64[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.tdp_w)


def gpu_load(queries: Sequence[Query]) -> GpuLoad:
    """Loads of runs of operators or networks on GPUs.

    Raises:
        UnknownPrecision: a device's sheet has no peak for a query's precision.
        ValueError: a device has no design power.
    """
    n, classes = len(queries), len(ACTIVITIES)
    busy = {name: np.zeros(n) for name in ("arithmetic", "memory", "device_s")}
    spent = {name: np.zeros(n * classes) for name in ("occupied", "filled")}
    for part in gather_devices(queries):
        table, devices = part.table, part.devices
        arithmetic = table.flops / (_peaks(table, devices, part.precision) * 1e12)
        moved = traffic_bytes(table, part.precision)
        memory = moved / (_column(map(used_bandwidth_gbs, devices)) * 1e9)
        roofline = np.maximum(np.maximum(arithmetic, memory), SHORTEST_S)
        kernels = kernel_activity(table, roofline, _column(map(compute_units, devices)))
        seconds = {"arithmetic": arithmetic, "memory": memory, "device_s": kernels.seconds}
        for name, column in seconds.items():
            busy[name] += np.bincount(part.owner.ravel(), (column * table.repeat).ravel(), n)
        cell, time = part.owner * classes + kernels.activity, kernels.seconds * table.repeat
        spent["occupied"] += np.bincount(cell.ravel(), time.ravel(), n * classes)
        filled = (time * kernels.filled).ravel()
        spent["filled"] += np.bincount(cell.ravel(), filled, n * classes)
    whole = busy["device_s"]
    boards = _boards([query.device for query in queries])
    occupied, filled = (column.reshape(n, classes) / whole[:, None] for column in spent.values())
    rates = (busy["arithmetic"] / whole, busy["memory"] / whole)
    return GpuLoad(*rates, occupied, filled, whole, *boards)


def saturating_load(
    devices: Sequence[Device], arithmetic: float, memory: float, device_s: float = 1.0
) -> GpuLoad:
    """Loads of large products that fill their GPU and are long enough to hide the host's work.

    Args:
        devices: n devices.
        arithmetic: arithmetic rate over the peak, the same for all.
        memory: traffic over the sheet's bandwidth.
        device_s: time of a run, seconds.

    Raises:
        ValueError: a device has no design power.
    """
    n = len(devices)
    used = np.array([memory * d.bandwidth_gbs / used_bandwidth_gbs(d) for d in devices])
    products = np.zeros((n, len(ACTIVITIES)))
    products[:, ACTIVITIES.index("product")] = 1.0
    columns = (np.full(n, arithmetic), used, products, products, np.full(n, device_s))
    return GpuLoad(*columns, *_boards(devices))


def _column(figures: Iterable[float]) -> Float64[np.ndarray, "c 1"]:
    """A figure of each of c devices, as a column."""
    return np.array(list(figures), dtype=np.float64)[:, None]


def _peaks(
    table: OperatorTable, devices: Sequence[Device], precision: NumberFormat
) -> Float64[np.ndarray, "c n"]:
    """Peak of n operators on c devices, 1e12 FLOP/s."""
    matrix = [device.peak(COMPUTE_PRECISION[precision], matrix=True) for device in devices]
    pairs = zip(devices, matrix, strict=True)
    vector = [device.peak_tflops.get("fp32", fallback) for device, fallback in pairs]
    return np.where(IS_GEMM[table.kind], _column(matrix), _column(vector))


def issue_rate(device: Device) -> float:
    """Compute units times highest clock, 1e11 per second; from the fp32 peak if one is missing."""
    if device.compute_units and device.boost_clock_mhz:
        return device.compute_units * device.boost_clock_mhz / 1e5
    fp32 = device.peak_tflops.get("fp32") or max(device.peak_tflops.values())
    return fp32 * 10.0 / (2.0 * LANES_PER_UNIT)


def compute_units(device: Device) -> float:
    """Compute units on the sheet, else as many as give `issue_rate` at `TYPICAL_GHZ`."""
    return float(device.compute_units or 100.0 * issue_rate(device) / TYPICAL_GHZ)


def used_bandwidth_gbs(device: Device) -> float:
    """Memory bandwidth that the chip can use, 1e9 bytes/s: at most `CARRIED_GBS` by its rate."""
    return min(device.bandwidth_gbs, CARRIED_GBS * issue_rate(device))


def _boards(devices: Sequence[Device]) -> tuple[Float64[np.ndarray, " n"], ...]:
    """The last five columns of `GpuLoad`."""
    figures: dict[Device, tuple[float, ...]] = {}
    for device in devices:
        if device not in figures:
            if device.tdp_w is None:
                raise ValueError(f"{device.name} has no TDP")
            idle = np.nan if device.idle_w is None else device.idle_w
            sheet = (issue_rate(device), used_bandwidth_gbs(device), device.tdp_w, idle)
            figures[device] = (*sheet, float(is_graphics(device)))
    table = np.array([figures[device] for device in devices], dtype=np.float64).reshape(-1, 5)
    rate, bandwidth, tdp, idle_w, graphics = table.T
    return rate, bandwidth, tdp, idle_w, graphics
