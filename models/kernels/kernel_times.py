"""Predicts the time of each kernel: a roofline bound, corrected by a small neural network.

    seconds = sqrt((compute e^f1)^2 + (memory e^f2)^2) + 2 us e^f3

`f` is a network with two hidden layers. Embeddings of the kernel kind, role in a training step,
execution mode, number format, measurement context and device are added to its first hidden layer
and to its output. It is fitted by gradient descent so that sums over kernels match measured times
of networks and single operators (`forerun.models.kernels.fitting`), and evaluated without torch.

Adapting to operators of a GPU without training rows gives it its own last layer (`OwnLayer`): the
fitted one plus a shift, estimated by regression on the hidden layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Positions, rows_by
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.kernels.rows import (
    FEATURES,
    FORWARD,
    ROLES,
    ROOT_OF_KERNEL_KIND,
    KernelRows,
)
from forerun.features.lowering.kernels import KERNEL_KINDS
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet

HEADS: Final = 3
"""Number of corrections: of arithmetic, of memory traffic and of the shortest time."""
SHORTEST_S: Final = SHORTEST_KERNEL_MS / 1e3
"""Seconds of a kernel without work: the fastest of 814,611 matrix products on seven GPUs took 1.65
(L40S), 1.77 (B200) and 2.4 microseconds (A100, H100, H200) when replayed from CUDA graphs
(AIConfigurator)."""
LARGEST_LOG: Final = 4.0
"""Largest log-correction."""
MODES: Final = ("eager", "eager_nhwc", "compiled", "cpu")
FORMATS: Final = ("fp32", "tf32", "half")
CONTEXTS: Final = ("network", "operator")
UNKNOWN: Final = 0
"""Row of the device table for a device without measured kernels."""
DEVIATION: Final = 1.0
"""Prior standard deviation of a correction's shift on a new GPU, both for the part common to all
kernels and for the part that depends on the hidden layer at a mean square of 1."""
NOISE: Final = 1.0
"""Standard deviation of an operator's log time around the sum of its kernels, and the threshold of
the Huber loss. Repeated runs differ by less, but the error of one operator does not carry over to
others. It and `DEVIATION` were set on six GPUs of NeuSight, with operators and networks in fp32;
halving either predicted recorded networks of an H100 and an H200 equally well."""
STEPS: Final = 6
TABLES: Final = ("kind", "role", "mode", "format", "context", "device")


def run_codes(queries: Sequence[Query], devices: Sequence[Sheet]) -> Positions:
    """Rows in the tables of mode, format, context and device, shape (n, 4).

    Args:
        queries: n runs.
        devices: spec sheets of the device table's rows, from the second on.
    """
    codes = np.array([_codes(query) for query in queries], dtype=np.intp).reshape(-1, 3)
    return np.column_stack([codes, _device_rows([query.device for query in queries], devices)])


def _device_rows(devices: Sequence[Device], known: Sequence[Sheet]) -> Positions:
    """Rows of n devices in the device table, shape (n,); `UNKNOWN` for devices not in it."""
    places = dict.fromkeys(devices, UNKNOWN)
    for device in places:
        if device.has_sheet:
            key = sheet(device)
            near = (place for place, other in enumerate(known, 1) if same_sheet(key, other))
            places[device] = next(near, UNKNOWN)
    return np.array([places[device] for device in devices], dtype=np.intp)


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
class OwnLayer:
    """Shift of the last layer for a GPU whose operators were measured.

    Attributes:
        sheet: spec sheet that identifies the GPU.
        weights: (h + 1, HEADS) coefficients of the shift in the `_basis` of the hidden layer.
        operators: number of measured operators.
    """

    sheet: Sheet
    weights: Matrix
    operators: int

    @classmethod
    def fit(
        cls,
        gpu: Sheet,
        rows: KernelRows,
        corrections: Matrix,
        hidden: Matrix,
        seconds: Column,
        weights: Column,
    ) -> Self:
        """Fit the shift, shrunk towards zero, so that sums of kernels match measured operators.

        Gauss-Newton steps on the Huber loss of the sum's logarithm, with a normal prior.

        Args:
            gpu: spec sheet of the GPU.
            rows: the kernels of n operators.
            corrections: (kernels, HEADS) without the shift.
            hidden: (kernels, h).
            seconds: (n,) measured GPU time.
            weights: (n,) weight of each operator.
        """
        basis, n = _basis(hidden), len(seconds)
        width = basis.shape[1]
        shift = np.zeros((width, HEADS))
        for _ in range(STEPS):
            logs = corrections + basis @ shift
            each = seconds_of(rows, logs) * rows.count
            total = np.bincount(rows.owner, weights=each, minlength=n)
            slopes = _slopes(rows, logs) * (rows.count / total[rows.owner])[:, None]
            jacobian = np.zeros((n, width * HEADS))
            by_kernel = basis[:, :, None] * slopes[:, None, :]
            np.add.at(jacobian, rows.owner, by_kernel.reshape(len(rows), -1))
            error = np.log(seconds / total)
            weight = weights / np.maximum(np.abs(error), NOISE) / NOISE
            curvature = jacobian.T @ (jacobian * weight[:, None])
            curvature[np.diag_indices_from(curvature)] += DEVIATION**-2
            slope = jacobian.T @ (weight * error) - DEVIATION**-2 * shift.reshape(-1)
            shift = shift + np.linalg.solve(curvature, slope).reshape(width, HEADS)
        return cls(gpu, shift, n)

    def shift(self, hidden: Matrix) -> Matrix:
        """The shift of the corrections of n kernels, (n, HEADS), given hidden layers, (n, h)."""
        return np.asarray(_basis(hidden) @ self.weights)


@dataclass(frozen=True)
class KernelTimes:
    """The fitted network with h hidden units.

    Attributes:
        mean, scale: (len(FEATURES),) for standardising the features.
        lowest, highest: (roots, len(FEATURES)) range of the features over the training kernels of
            each root of `KERNEL_KINDS`.
        first, second, last: weights, (len(FEATURES), h), (h, h), (h, HEADS).
        bias: (h,) of the second layer.
        tables: name in `TABLES` -> embeddings (rows, h + HEADS), added to the first layer and to
            the corrections.
        devices: spec sheets of the device table's rows, from the second on.
        own: shifts of the last layer for GPUs whose operators were measured.
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
    own: tuple[OwnLayer, ...] = ()

    def kernel_seconds(self, queries: Sequence[Query], rows: KernelRows) -> Column:
        """Seconds of one launch of each kernel.

        Args:
            queries: the runs.
            rows: their n kernels.

        Returns:
            (n,) seconds.
        """
        corrections = self._layers(queries, rows)[0]
        places = self._places_of_own([query.device for query in queries])[rows.owner]
        for place in np.unique(places[places > 0]).tolist():
            kernels = places == place
            # Operators were only measured in the forward pass.
            forward = replace(rows.take(kernels), role=np.full(kernels.sum(), FORWARD))
            hidden = self._layers(queries, forward)[1]
            corrections[kernels] += self.own[place - 1].shift(hidden)
        return seconds_of(rows, corrections)

    def with_operators(
        self, queries: Sequence[Query], rows: KernelRows, seconds: Column, weights: Column
    ) -> Self:
        """A copy with a last layer for each GPU of n operators, replacing any earlier one.

        Args:
            queries: n operators.
            rows: their kernels.
            seconds: (n,) measured GPU time.
            weights: (n,) weight of each operator.
        """
        corrections, hidden = self._layers(queries, rows)
        fitted = []
        for gpu, runs in rows_by(sheet(query.device) for query in queries).items():
            chosen = np.zeros(len(queries), dtype=np.bool_)
            chosen[runs] = True
            kernels = chosen[rows.owner]
            of_kernels = rows.of_runs_at(chosen), corrections[kernels], hidden[kernels]
            fitted.append(OwnLayer.fit(gpu, *of_kernels, seconds[chosen], weights[chosen]))
        kept = [o for o in self.own if not any(same_sheet(o.sheet, f.sheet) for f in fitted)]
        return replace(self, own=(*kept, *fitted))

    def operators(self, device: Device) -> int:
        """Number of operators that a GPU's own last layer was fitted to; 0 if it has none."""
        (place,) = self._places_of_own([device])
        return self.own[place - 1].operators if place else 0

    def _places_of_own(self, devices: Sequence[Device]) -> Positions:
        """Positions of n devices in `own`, from 1 on; 0 for a device without an entry."""
        return _device_rows(devices, [layer.sheet for layer in self.own])

    def _layers(self, queries: Sequence[Query], rows: KernelRows) -> tuple[Matrix, Matrix]:
        """Corrections of n kernels before any shift, (n, HEADS), and their hidden layer, (n, h)."""
        h = len(self.bias)
        by_run = self._by_run(run_codes(queries, self.devices))
        shift = self._kind_roles[rows.kind, rows.role] + by_run[rows.owner]
        roots = ROOT_OF_KERNEL_KIND[rows.kind]
        inside = np.clip(rows.features, self.lowest[roots], self.highest[roots])
        standard = (inside - self.mean) / self.scale
        hidden = _swish(standard @ self.first + shift[:, :h])
        hidden = _swish(hidden @ self.second + self.bias)
        return hidden @ self.last + shift[:, h:], hidden

    def seconds(self, queries: Sequence[Query], rows: KernelRows | None = None) -> Column:
        """Seconds of n runs as sums of their kernels, shape (n,)."""
        rows = KernelRows.of(queries) if rows is None else rows
        each = self.kernel_seconds(queries, rows) * rows.count
        summed = np.bincount(rows.owner, weights=each, minlength=len(queries))
        return summed.astype(np.float64)

    def _by_run(self, codes: Positions) -> Matrix:
        columns = zip(TABLES[2:], codes.T, strict=True)
        return np.asarray(sum(self.tables[name][column] for name, column in columns))

    @cached_property
    def _kind_roles(self) -> Matrix:
        """Embeddings of kind plus role, (kinds, roles, h + HEADS)."""
        kinds, roles = self.tables["kind"], self.tables["role"]
        assert len(kinds) == len(KERNEL_KINDS)
        assert len(roles) == len(ROLES)
        return np.asarray(kinds[:, None, :] + roles[None, :, :])


def seconds_of(rows: KernelRows, corrections: Matrix) -> Column:
    """Seconds per launch of n kernels, given their log-corrections, (n, HEADS)."""
    compute, memory, shortest = _parts(rows, corrections)
    return np.asarray(np.hypot(compute, memory) + shortest)


def _slopes(rows: KernelRows, corrections: Matrix) -> Matrix:
    """Derivatives of `seconds_of` in the log-corrections, (n, HEADS)."""
    compute, memory, shortest = _parts(rows, corrections)
    spent = np.maximum(np.hypot(compute, memory), 1e-30)
    return np.column_stack([compute**2 / spent, memory**2 / spent, shortest])


def _parts(rows: KernelRows, corrections: Matrix) -> tuple[Column, Column, Column]:
    """Seconds of arithmetic, memory traffic and launch of n kernels, each (n,)."""
    compute, memory, shortest = np.exp(np.clip(corrections, -LARGEST_LOG, LARGEST_LOG)).T
    return rows.compute_s * compute, rows.memory_s * memory, SHORTEST_S * shortest


def _basis(hidden: Matrix) -> Matrix:
    """Regressors of n kernels: the hidden layer over the root of its size, and a constant."""
    return np.column_stack([hidden / np.sqrt(max(1, hidden.shape[1])), np.ones(len(hidden))])


def _swish(values: Matrix) -> Matrix:
    return np.asarray(values / (1.0 + np.exp(-np.clip(values, -30.0, 30.0))))
