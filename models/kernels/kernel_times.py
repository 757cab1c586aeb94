"""The time of each kernel of a run: its bound, corrected by a small network of features.

    seconds = sqrt((compute e^f1)^2 + (memory e^f2)^2) + 2 us e^f3

`f` is a network of two hidden layers. Kind of kernel, role in a training step, execution mode,
number format, context of the measurement and device add to its hidden layer and to `f`. It is
fitted by gradient descent to measured times of networks and of single operators, as the sum of
their kernels (`forerun.models.kernels.fitting`), and evaluated without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.kernels.rows import FEATURES, ROLES, ROOT_OF_KERNEL_KIND, KernelRows
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet

HEADS: Final = 3
"""Corrections of arithmetic, traffic and the shortest time."""
SHORTEST_S: Final = SHORTEST_KERNEL_MS / 1e3
"""Seconds of a kernel without work: the fastest of 814,611 matrix products on seven GPUs took 1.65
(L40S), 1.77 (B200) and 2.4 microseconds (A100, H100, H200), launched from recorded graphs
(AIConfigurator)."""
LARGEST_LOG: Final = 4.0
"""Largest logarithm of a correction."""
MODES: Final = ("eager", "eager_nhwc", "compiled", "cpu")
FORMATS: Final = ("fp32", "tf32", "half")
CONTEXTS: Final = ("network", "operator")
UNKNOWN: Final = 0
"""Row of the table of devices for one without measured kernels."""
TABLES: Final = ("kind", "role", "mode", "format", "context", "device")


def run_codes(queries: Sequence[Query], devices: Sequence[Sheet]) -> Positions:
    """Positions in the tables of mode, format, context and device, shape (n, 4).

    Args:
        queries: n runs.
        devices: sheets of the devices from the second row of the table on.
    """
    rows = {device: _row_of(device, devices) for device in {query.device for query in queries}}
    codes = [(*_codes(query), rows[query.device]) for query in queries]
    return np.array(codes, dtype=np.intp).reshape(-1, 4)


def _row_of(device: Device, devices: Sequence[Sheet]) -> int:
    own = sheet(device) if device.has_sheet else ()
    near = (row for row, known in enumerate(devices, 1) if own and same_sheet(own, known))
    return next(near, UNKNOWN)


def _codes(query: Query) -> tuple[int, int, int]:
    run, software = query.run, query.software
    nhwc = "_nhwc" if software.layout == "nhwc" and not software.fuses else ""
    mode = "compiled" if software.fuses else f"eager{nhwc}"
    mode = "cpu" if query.device.kind == "cpu" else mode
    precision = run.precision if run.precision in FORMATS else "half"
    context = "operator" if isinstance(run, Kernel) else "network"
    return (
        MODES.index(mode),
        FORMATS.index(precision),
        CONTEXTS.index(context),
    )


@dataclass(frozen=True)
class KernelTimes:
    """The fitted network, h hidden units.

    Attributes:
        mean, scale: (len(FEATURES),) standardise the features.
        lowest, highest: (roots, len(FEATURES)) range of the features over the training kernels of
            each root of `KERNEL_KINDS`.
        first, second, last: weights, (len(FEATURES), h), (h, h), (h, HEADS).
        bias: (h,) of the second layer.
        tables: name of a table in `TABLES` -> (rows, h + HEADS), added to the first layer and to
            the corrections.
        devices: sheets of the devices from the second row of their table on.
    """

    mean: Column = field(default_factory=lambda: np.zeros(len(FEATURES)))
    scale: Column = field(default_factory=lambda: np.ones(len(FEATURES)))
    lowest: Matrix = field(default_factory=lambda: np.zeros((0, len(FEATURES))))
    highest: Matrix = field(default_factory=lambda: np.zeros((0, len(FEATURES))))
    first: Matrix = field(default_factory=lambda: np.zeros((len(FEATURES), 0)))
    second: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    last: Matrix = field(default_factory=lambda: np.zeros((0, HEADS)))
    bias: Column = field(default_factory=lambda: np.zeros(0))
    tables: Mapping[str, Matrix] = field(default_factory=dict)
    devices: tuple[Sheet, ...] = ()

    def kernel_seconds(self, queries: Sequence[Query], rows: KernelRows) -> Column:
        """Seconds of one launch of each kernel.

        Args:
            queries: the runs.
            rows: their n kernels.

        Returns:
            (n,) seconds.
        """
        codes = run_codes(queries, self.devices)[rows.owner]
        h = len(self.bias)
        kinds = self._kind_roles[rows.kind, rows.role]
        shift = kinds + self._by_run(codes)
        roots = ROOT_OF_KERNEL_KIND[rows.kind]
        inside = np.clip(rows.features, self.lowest[roots], self.highest[roots])
        standard = (inside - self.mean) / self.scale
        hidden = _swish(standard @ self.first + shift[:, :h])
        hidden = _swish(hidden @ self.second + self.bias)
        return seconds_of(rows, hidden @ self.last + shift[:, h:])

    def seconds(self, queries: Sequence[Query], rows: KernelRows | None = None) -> Column:
        """Seconds of n runs, the sums of their kernels, shape (n,)."""
        rows = KernelRows.of(queries) if rows is None else rows
        each = self.kernel_seconds(queries, rows) * rows.count
        summed = np.bincount(rows.owner, weights=each, minlength=len(queries))
        return summed.astype(np.float64)

    def _by_run(self, codes: Positions) -> Matrix:
        columns = zip(TABLES[2:], codes.T, strict=True)
        return np.asarray(sum(self.tables[name][column] for name, column in columns))

    @cached_property
    def _kind_roles(self) -> Matrix:
        """(kinds, roles, h + HEADS)."""
        kinds, roles = self.tables["kind"], self.tables["role"]
        assert len(kinds) == len(KERNEL_KINDS)
        assert len(roles) == len(ROLES)
        return np.asarray(kinds[:, None, :] + roles[None, :, :])


def seconds_of(rows: KernelRows, corrections: Matrix) -> Column:
    """Seconds of one launch of n kernels from the logarithms of their corrections, (n, HEADS)."""
    compute, memory, shortest = np.exp(np.clip(corrections, -LARGEST_LOG, LARGEST_LOG)).T
    spent = np.hypot(rows.compute_s * compute, rows.memory_s * memory)
    return np.asarray(spent + SHORTEST_S * shortest)


def _swish(values: Matrix) -> Matrix:
    return np.asarray(values / (1.0 + np.exp(-np.clip(values, -30.0, 30.0))))
