"""Represents whole networks as feature rows: sums over kernels, and time-weighted means."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.kernels.rows import (
    FEATURES,
    KERNEL_ROOTS,
    OF_DEVICE,
    ROLES,
    ROOT_OF_KERNEL_KIND,
    KernelRows,
)
from forerun.features.lowering.kernels import KERNEL_KINDS
from forerun.features.operators.kinds import CLASS_CODE, OPERATOR_CLASSES
from forerun.models.kernels.kernel_times import FORMATS, MODES, SHORTEST_S, KernelTimes, run_codes

SHARES: Final = tuple(f"share_{root}" for root in KERNEL_ROOTS)
MEANS: Final = tuple(f"mean_{name}" for name in FEATURES if name not in OF_DEVICE)
FLAGS: Final = (*(f"is_{name}" for name in (*MODES, *FORMATS)), "without_casts")
NETWORK_FEATURES: Final = (
    *("log_time", "log_time_over_roofline", "log_launches", "log_launch_share"),
    *SHARES,
    *(f"share_{role}" for role in ROLES),
    *MEANS,
    *FLAGS,
)
"""Columns of `NetworkRows.features`. Shares and means are weighted by kernel time."""
SHARE_COLUMNS: Final = slice(4, 4 + len(SHARES))
RANGED_FEATURES: Final = (
    *("log_launches", "mean_log_batch", "mean_log_k", "mean_log_n", "mean_log_groups"),
    *("mean_aligned_8", "mean_aligned_64", "mean_share_of_weights", "mean_torch_version"),
)
"""Features whose range over the training rows bounds the domain of CPUs."""
RANGED: Final = np.array([NETWORK_FEATURES.index(name) for name in RANGED_FEATURES], dtype=np.intp)
DECIMALS: Final = 6
"""Decimals to which features are rounded."""
OPERATOR: Final = "operator"
"""Execution mode of single operators."""

_MEAN_AT = np.array([i for i, name in enumerate(FEATURES) if name not in OF_DEVICE])
CLASS_OF_KERNEL_KIND: Final = np.array([CLASS_CODE[kind.op_class] for kind in KERNEL_KINDS])
"""Position in `OPERATOR_CLASSES` of each kernel kind."""


def execution_mode(query: Query) -> str:
    """The execution mode of a run, which is the stratum of its errors."""
    run, software = query.run, query.software
    if run.kind == "kernel":
        return OPERATOR
    if query.device.kind == "cpu":
        return "cpu"
    nhwc = "_nhwc" if software.layout == "nhwc" else ""
    if run.phase == "training":
        return f"training{nhwc}"
    return "compiled" if software.fuses else f"eager{nhwc}"


@dataclass(frozen=True)
class NetworkRows(Columns):
    """n runs as sums of their kernels.

    Attributes:
        log_seconds: (n,) logarithm of the summed kernel time.
        features: (n, len(NETWORK_FEATURES)).
        class_shares: (n, len(OPERATOR_CLASSES)) share of each operator class in the time.
        modes: (n,) execution modes.
    """

    log_seconds: Column
    features: Matrix
    class_shares: Matrix
    modes: Names

    def __len__(self) -> int:
        return len(self.log_seconds)

    @classmethod
    def of(cls, queries: Sequence[Query], times: KernelTimes, rows: KernelRows) -> Self:
        """Rows in the order of the queries.

        Args:
            queries: n runs.
            times: gives the time of each kernel.
            rows: the kernels of the runs.
        """
        n, owner = len(queries), rows.owner
        each = times.kernel_seconds(queries, rows) * rows.count

        def summed(values: Matrix) -> Matrix:
            size = values.shape[1]
            places = owner[:, None] * size + np.arange(size)
            return _counted(places.ravel(), values.ravel(), (n, size))

        def by_code(codes: Positions, size: int) -> Matrix:
            return _counted(owner * size + codes, shares, (n, size))

        whole = summed(np.column_stack([each, rows.roofline_s * rows.count, rows.count]))
        total, roofline, launches = whole.T
        shares = each / total[owner]
        means = summed(shares[:, None] * rows.features[:, _MEAN_AT])
        codes = run_codes(queries, ())
        plain = np.array([q.run.precision in ("fp16", "bf16") for q in queries], dtype=np.float64)
        features = np.column_stack(
            [
                np.log(total),
                np.log(total / np.maximum(roofline, 1e-12)),
                np.log(np.maximum(launches, 1.0)),
                np.log(np.maximum(launches, 1.0) * SHORTEST_S / total),
                by_code(ROOT_OF_KERNEL_KIND[rows.kind], len(KERNEL_ROOTS)),
                by_code(rows.role, len(ROLES)),
                means,
                np.eye(len(MODES))[codes[:, 0]],
                np.eye(len(FORMATS))[codes[:, 1]],
                plain,
            ]
        )
        # The order of summation changes the last digits, which must not affect splits of the trees.
        return cls(
            np.log(total),
            features.round(DECIMALS),
            by_code(CLASS_OF_KERNEL_KIND[rows.kind], len(OPERATOR_CLASSES)),
            np.array([execution_mode(query) for query in queries], dtype=np.str_),
        )

    @property
    def fused(self) -> Mask:
        """Rows whose runtime fuses operators, shape (n,)."""
        return np.asarray((self.modes == "compiled") | (self.modes == "cpu"))


def _counted(places: Positions, weights: Column, shape: tuple[int, int]) -> Matrix:
    """A matrix of sums of the weights by place, filled row by row."""
    found = np.bincount(places, weights=weights, minlength=shape[0] * shape[1])
    return found.astype(np.float64).reshape(shape)


def with_latency(measurements: Measurements) -> Measurements:
    """The rows with a latency and a positive weight."""
    latency, weights = measurements.values["latency_ms"], measurements.weights
    # NaN compares false, so rows without a latency are dropped.
    counted = True if weights is None else weights > 0
    return measurements.take((latency > 0) & counted)
