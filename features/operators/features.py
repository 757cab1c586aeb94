"""Dimensionless features of operators on one device, by the kernel family that they run as.

Each family has a physical estimate of its time at full clock (the roofline with known properties of
its kernels: tiles and waves, repeated reads), the shortest time that the power limit allows, and
features that are ratios to the device, clipped to the range that every training device covers.
Wave quantisation after Lee et al., "Forecasting GPU performance for deep learning training and
inference" (ASPLOS 2025), and NVIDIA's matrix multiplication guide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.data.device import Device, Precision
from forerun.data.shapes import Float64, Int
from forerun.data.workload import NumberFormat
from forerun.features.llm_kernels.table import KernelTable
from forerun.features.operators.kinds import KIND_CODE, KINDS
from forerun.features.operators.roofline import (
    COMPUTE_PRECISION,
    ELEMENT_BYTES,
    roofline_ms,
    sustained_tflops,
    traffic_bytes,
)
from forerun.features.operators.table import OperatorTable

PerOperator = Float64[np.ndarray, " n"]
"""One value per operator, (n,)."""

FAMILIES: tuple[str, ...] = (
    *("product", "conv", "elementwise", "softmax", "layer_norm", "recurrent"),
)
"""Kernel families."""

FAMILY_OF_KIND: Int[np.ndarray, " kinds"] = np.array(
    [FAMILIES.index(kind.family) for kind in KINDS]
)
"""Position in `KINDS` -> position in `FAMILIES`."""

SHORTEST_KERNEL_MS = 0.002
"""Shortest prediction for a GPU kernel in milliseconds, also after adaptation: the low end of
CUDA's launch overhead (2 to 5 microseconds from a full queue)."""
LAUNCH_MS = 0.018
"""Milliseconds of a launch measured with a pair of events: median of small elementwise kernels on
NeuSight's five GPUs."""
CLEAR_OF_LAUNCH_MS: Mapping[str, float] = {"conv": 0.01, "product": 0.01}
"""Family -> roofline time from which rows are used in training, 0.02 for other families: the launch
dominates shorter ones."""
TIMED_BY_EVENTS = ("conv", "linear", "matmul", "elementwise", "softmax", "layer_norm")
"""Kinds of operators timed with a pair of events, in fp32."""
EVENTS_FROM: float = 3.0
"""Roofline time over `CLEAR_OF_LAUNCH_MS` from which a launch takes as long as between a pair of
events. Chosen on fp32 operators of the H100, the H200 and NeuSight's A100 80 GB, which are
therefore no test of it."""
_REDUCING = ("conv", "linear", "matmul", "softmax", "layer_norm", "group_norm", "reduce")
_REDUCING_MS = 0.0035
"""Shortest kernel that reduces: layer norms of one token take 4 and 3 microseconds on an A100 and
an A40 (Vidur), elementwise kernels 1 and 2; analytical models of bf16 products have 3.1 and 3.4
(vLLM and SGLang in AIConfigurator). Attention reduces twice in sequence."""
START_MS: PerOperator = np.array(
    [
        _REDUCING_MS * ((kind.name in _REDUCING) + 2 * (kind.name == "attention"))
        or SHORTEST_KERNEL_MS
        for kind in KINDS
    ]
)
"""Position in `KINDS` -> milliseconds of a kernel without work, from a full queue."""
FLOOR_OF_ROOFLINE: Mapping[str, float] = {"conv": 0.4}
"""Family -> shortest time as a share of the roofline. Winograd convolutions need 2.25 times fewer
multiplications (Lavin and Gray 2016); no other family was measured below its roofline."""

TILES = ((256, 128), (128, 128), (128, 64), (64, 64), (32, 32))
_GEMM_COMMON = (
    "log_bytes_over_l2",
    "log_intensity_over_ridge",
    *(f"{what}_{m}x{n}" for m, n in TILES for what in ("fill", "pad")),
    "waves_128x128",
    "waves_64x64",
    "log_best_tile",
    *("log_k", "log_m", "log_n", "log_batch", "log_flops_per_unit", "log_aspect", "log_depth"),
    "log_weight_over_l2",
    *("align_m", "align_n", "align_k"),
    "is_linear",
)
_ROWS_COMMON = ("log_roofline", "log_bytes_over_l2", "log_width")
FEATURES: Mapping[str, tuple[str, ...]] = {
    "product": _GEMM_COMMON,
    "conv": (*_GEMM_COMMON, "kernel", "stride", "log_groups"),
    "elementwise": (*_ROWS_COMMON, "operands", "heavy"),
    "softmax": (
        *_ROWS_COMMON,
        *("align_4", "lane_fill", "iterations", "warp_kernel", "log_reload_over_l2"),
        *("log_live_per_unit", "log_traffic"),
    ),
    "layer_norm": (
        *_ROWS_COMMON,
        *("align_4", "lane_fill", "log_reload_over_l2", "log_live_per_unit", "log_traffic"),
    ),
    "recurrent": (),
}
"""Family -> columns of its matrix, in order."""

_SIZES = ("log_batch", "log_m", "log_n", "log_k", "log_width")
_RESIDENT_THREADS: Mapping[str, float] = {"turing": 1024.0, "ada": 1536.0}
_TYPICAL_CLOCK_MHZ = 1500.0
_TYPICAL_L2_MIB_PER_UNIT = 0.1
_UNIT_FLOPS_PER_CLOCK = 256.0
_RELOAD_RAMP = (-1.5, -0.3)
_WINOGRAD_SAVING = 2.25
"""Winograd's F(2x2, 3x3) needs 2.25 times fewer multiplications (Lavin and Gray 2016)."""
_WORST_FILL = 0.4
_BY_ELEMENT = ("batch_norm", "pool", "resize")
_ELEMENTS_PER_CYCLE = 1.4
"""Elements that a compute unit with 2,048 threads moves per cycle if each thread requests one at a
time, whatever their size: medians of batch norms and pools are 1.35 and 1.18 on an A30 and, with
1,024 threads, 0.70 and 0.79 on a GeForce RTX 2080 Ti (torch_op_energy). Copies are excluded,
because including them worsens predictions of fp32 networks (NeuSight)."""
_VECTOR_FP32_7NM_GFLOP_PER_W = 65.0
"""GFLOP/s per watt of fp32 products on vector units at 7 nm: 16 of 19.5 TFLOP/s at 250 W on the
training rows of NeuSight's A100 40 GB (`features.roofline` interpolates 90 from data sheets)."""


_TIMED = np.array([kind.name in TIMED_BY_EVENTS for kind in KINDS])
_BY_ELEMENT_AT = [KIND_CODE[name] for name in _BY_ELEMENT]


@dataclass(frozen=True, slots=True)
class _Chip:
    peak_flops: float
    vector_flops: float
    elements_per_s: float
    capped_share: float
    bandwidth: float
    units: float
    l2_bytes: float
    resident_threads: float


def operator_features(
    table: OperatorTable, device: Device, precision: NumberFormat, family: str
) -> KernelTable:
    """Features of operators of one family, as kernels on one device.

    Operators timed with a pair of events include a launch, which decreases linearly to `START_MS`
    below `EVENTS_FROM` times `CLEAR_OF_LAUNCH_MS`.

    Args:
        table: n operators at their batch size.
        device: spec sheet; missing units, L2 or clock are estimated from its peak.
        precision: number format of the run.
        family: one of `FAMILIES`.

    Raises:
        UnknownPrecision: the sheet has no peak for the precision.
    """
    chip = _chip(device, precision)
    roof = roofline_ms(table, device, precision)
    moved = traffic_bytes(table, precision)
    columns = _BUILDERS[family](table, chip, roof, moved, ELEMENT_BYTES[precision])
    nothing = np.zeros(len(table))
    base = columns.pop("_log_base", nothing), columns.pop("_power_ms", nothing)
    clear = roof / CLEAR_OF_LAUNCH_MS.get(family, 0.02) / EVENTS_FROM
    launch = np.minimum(clear, 1.0) * _TIMED[table.kind] * (precision == "fp32")
    shortest = SHORTEST_KERNEL_MS if device.kind == "gpu" else 0.0
    matrix = np.array([columns[name] for name in FEATURES[family]]).reshape(-1, len(table)).T
    return KernelTable(
        features=matrix,
        bound_s=roof / 1e3,
        serial_s=np.zeros((len(table), 0)),
        parallel_s=roof[:, None] / 1e3 * np.exp(base[0])[:, None],
        launch=launch,
        least_s=np.maximum(FLOOR_OF_ROOFLINE.get(family, 1.0) * roof, shortest) / 1e3,
        site=_sites(family, matrix, roof),
        power_s=base[1] / 1e3,
        start_s=(1.0 - launch) * START_MS[table.kind] / 1e3,
    )


def _sites(
    family: str, matrix: Float64[np.ndarray, "n features"], roof: PerOperator
) -> PerOperator:
    """Keys that are equal where sizes and bound agree after rounding down to powers of two."""
    columns = [FEATURES[family].index(name) for name in _SIZES if name in FEATURES[family]]
    sizes = np.floor(np.column_stack([matrix[:, columns] / np.log(2.0), np.log2(roof)]) + 1e-6)
    # Sums with fixed irrational weights hash the rows: different rows have different keys.
    return np.asarray(np.round(sizes @ np.sqrt(np.arange(2.0, 2.0 + sizes.shape[1])), 9))


def assumed(device: Device) -> tuple[str, ...]:
    """Figures that the features need and the sheet lacks, which are estimated from the peak."""
    return tuple(
        name
        for name in ("compute_units", "l2_mib", "boost_clock_mhz", "tdp_w")
        if getattr(device, name) is None
    )


def _chip(device: Device, precision: NumberFormat) -> _Chip:
    arithmetic = COMPUTE_PRECISION[precision]
    peak = device.peak(arithmetic, matrix=True) * 1e12
    clock = (device.boost_clock_mhz or _TYPICAL_CLOCK_MHZ) * 1e6
    fp32 = device.peak_tflops.get("fp32", peak / 8e12) * 1e12
    units = float(device.compute_units or max(1.0, fp32 / clock / _UNIT_FLOPS_PER_CLOCK))
    share = min(1.0, _sustained_flops(device, arithmetic) / peak)
    threads = _RESIDENT_THREADS.get(device.architecture or "", 2048.0)
    return _Chip(
        peak_flops=peak,
        vector_flops=fp32,
        elements_per_s=_ELEMENTS_PER_CYCLE * threads / 2048.0 * units * clock,
        capped_share=share,
        bandwidth=device.bandwidth_gbs * 1e9,
        units=units,
        l2_bytes=(device.l2_mib or _TYPICAL_L2_MIB_PER_UNIT * units) * 2**20,
        resident_threads=threads,
    )


def _sustained_flops(device: Device, arithmetic: Precision) -> float:
    sustained = sustained_tflops(device, arithmetic) * 1e12
    vector = device.computes_in(arithmetic) == "fp32" and device.fp32_matrix_tflops is None
    if vector and device.process_nm == 7.0 and device.tdp_w is not None:
        return min(sustained, device.tdp_w * _VECTOR_FP32_7NM_GFLOP_PER_W * 1e9)
    return sustained


def _log(values: PerOperator) -> PerOperator:
    return np.asarray(np.log(np.maximum(values, 1e-12)))


_ALIGNMENTS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])


def _gemm(
    table: OperatorTable, chip: _Chip, roof: PerOperator, moved: PerOperator, element: float
) -> dict[str, PerOperator]:
    b, m, n, k = (np.maximum(x, 1.0) for x in (table.batch, table.m, table.n, table.k))
    linear = (table.parameter_elements > 0).astype(np.float64)
    ridge = chip.peak_flops / chip.bandwidth
    intensity = _log(table.flops / moved / ridge)
    columns, best = _tiles(b, m, n, chip)
    # Fused attention in fp32 and TF32 multiplies on vector units.
    wide = (table.kind == KIND_CODE["attention"]) & (element >= 4.0)
    compute = table.flops / np.where(wide, chip.vector_flops, chip.peak_flops)
    memory = moved / chip.bandwidth
    weights = np.where(b > 1, moved / b, k * n * element)
    columns |= {
        "log_bytes_over_l2": np.clip(_log(moved / chip.l2_bytes), -8, 6),
        "log_intensity_over_ridge": intensity,
        "log_best_tile": _log(best),
        "log_k": _log(np.minimum(k, 4096)),
        "log_m": _log(np.minimum(m, 4096)),
        "log_n": _log(np.minimum(n, 4096)),
        "log_batch": _log(np.minimum(b, 1024)),
        "log_flops_per_unit": np.clip(_log(table.flops / chip.units / 1e6), -6, 8),
        "log_aspect": np.clip(_log(m / n), -6, 6),
        "log_depth": np.clip(_log(k * k / (m * n)), -10, 10),
        "log_weight_over_l2": np.clip(_log(weights / chip.l2_bytes), -10, 4),
        "is_linear": linear,
    }
    for name, size in (("m", m), ("n", n), ("k", k)):
        aligned = np.mod.outer(size, _ALIGNMENTS) == 0.0
        columns[f"align_{name}"] = aligned.sum(axis=1, dtype=np.float64)
    columns["_log_base"] = _log(np.maximum(compute * best, memory) * 1e3 / roof)
    # Tile padding is multiplied too and draws power; idle units in the last wave do not.
    drawn = 1e3 * compute / np.maximum(columns["pad_64x64"], _WORST_FILL)
    columns["_power_ms"] = drawn / chip.capped_share
    return columns


def _tiles(
    b: PerOperator, m: PerOperator, n: PerOperator, chip: _Chip
) -> tuple[dict[str, PerOperator], PerOperator]:
    """Fill of the last wave and padding for several tile shapes, and the cheapest one's cost."""
    columns: dict[str, PerOperator] = {}
    best = np.full(len(m), np.inf)
    for tile_m, tile_n in TILES:
        tiles = b * np.ceil(m / tile_m) * np.ceil(n / tile_n)
        waves = tiles / chip.units
        columns[f"fill_{tile_m}x{tile_n}"] = waves / np.ceil(waves)
        columns[f"pad_{tile_m}x{tile_n}"] = b * m * n / (tiles * tile_m * tile_n)
        if (tile_m, tile_n) in ((128, 128), (64, 64)):
            columns[f"waves_{tile_m}x{tile_n}"] = np.clip(_log(waves), -6, 6)
        done = np.ceil(waves) * tile_m * tile_n * chip.units / (b * m * n)
        best = np.minimum(best, done * (1 + 16.0 / tile_m + 16.0 / tile_n))
    return columns, best


def _conv(
    table: OperatorTable, chip: _Chip, roof: PerOperator, moved: PerOperator, element: float
) -> dict[str, PerOperator]:
    columns = _gemm(table, chip, roof, moved, element)
    columns["kernel"] = table.kernel
    columns["stride"] = table.stride
    columns["log_groups"] = np.log(np.maximum(table.batch, 1.0))
    compute, memory = table.flops / chip.peak_flops, moved / chip.bandwidth
    columns["_log_base"] = _log(np.maximum(compute, memory) * 1e3 / roof)
    columns["_power_ms"] = 1e3 * compute / chip.capped_share / _WINOGRAD_SAVING
    return columns


def _rows(
    table: OperatorTable, chip: _Chip, roof: PerOperator, moved: PerOperator
) -> dict[str, PerOperator]:
    width = np.where(table.width > 0, table.width, 1024.0)
    return {
        "log_roofline": np.clip(_log(roof / 0.01), -1, 2.5),
        "log_bytes_over_l2": np.clip(_log(moved / chip.l2_bytes), -2, 1),
        "log_width": np.clip(_log(width), 3, np.log(4096.0)),
    }


def _elementwise(
    table: OperatorTable, chip: _Chip, roof: PerOperator, moved: PerOperator, element: float
) -> dict[str, PerOperator]:
    columns = _rows(table, chip, roof, moved)
    columns["operands"] = np.clip(table.operands, 1.0, 2.0)
    columns["heavy"] = table.heavy
    by_element = (table.in_elements + table.out_elements) / chip.elements_per_s
    slow = np.where(np.isin(table.kind, _BY_ELEMENT_AT), by_element * 1e3 / roof, 1.0)
    columns["_log_base"] = _log(np.maximum(slow, 1.0))
    return columns


def _reload(
    width: PerOperator, live: PerOperator, chip: _Chip, element: float, extra: PerOperator
) -> dict[str, PerOperator]:
    """Concurrent rows of all units over L2: rows that do not fit are read again from DRAM."""
    reload = np.clip(_log(chip.units * live * width * element / chip.l2_bytes), -4, 1.5)
    low, high = _RELOAD_RAMP
    ramp = np.clip((reload - low) / (high - low), 0, 1)
    traffic = np.log1p(np.where(live > 0, extra, 0.0) * ramp)
    return {
        "log_reload_over_l2": reload,
        "log_live_per_unit": np.clip(_log(live * width * element / 1024), 2, 8),
        "log_traffic": traffic,
        "_log_base": traffic,
    }


def _softmax(
    table: OperatorTable, chip: _Chip, roof: PerOperator, moved: PerOperator, element: float
) -> dict[str, PerOperator]:
    # PyTorch: one warp per row and a single read up to 1,024 wide; beyond, one block per row with
    # a power of two of threads, which reads the row again (aten/src/ATen/native/cuda/SoftMax.cu).
    width = np.maximum(table.width, 1.0)
    vectors = np.maximum(np.ceil(width / 4.0), 1.0)
    half = np.minimum(np.floor(width / 4.0), 1024.0) / 2.0
    block = np.maximum(2.0 ** np.ceil(np.log2(np.maximum(half, 1.0))), 32.0)
    warp = width <= 1024
    steps = vectors / block
    padded = 2.0 ** np.ceil(np.log2(np.maximum(width, 32.0)))
    columns = _rows(table, chip, roof, moved)
    columns |= {
        "align_4": (width % 4 == 0).astype(np.float64),
        "lane_fill": np.where(warp, width / padded, steps / np.ceil(steps)),
        "iterations": np.where(warp, 0.0, np.minimum(np.ceil(steps), 8.0)),
        "warp_kernel": warp.astype(np.float64),
    }
    live = np.where(warp, 0.0, chip.resident_threads / block)
    return columns | _reload(width, live, chip, element, np.ones(len(table)))


def _layer_norm(
    table: OperatorTable, chip: _Chip, roof: PerOperator, moved: PerOperator, element: float
) -> dict[str, PerOperator]:
    # PyTorch's vectorised kernel: 128 threads per row, four elements each.
    width = np.maximum(table.width, 1.0)
    steps = np.maximum(np.ceil(width / 4.0), 1.0) / 128.0
    columns = _rows(table, chip, roof, moved)
    columns |= {
        "align_4": (width % 4 == 0).astype(np.float64),
        "lane_fill": steps / np.ceil(steps),
    }
    live = np.full(len(table), chip.resident_threads / 128.0)
    return columns | _reload(width, live, chip, element, np.full(len(table), 0.5))


_Builder = Callable[[OperatorTable, _Chip, PerOperator, PerOperator, float], dict[str, PerOperator]]
_BUILDERS: Mapping[str, _Builder] = {
    "product": _gemm,
    "recurrent": lambda *_: {},
    "conv": _conv,
    "elementwise": _elementwise,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}
