"""An additive latency model: the time of a network as a sum over the kinds of kernels it launches.

    seconds = sum over kinds of  a x arithmetic at peak  +  b x traffic at full bandwidth
            + sum over roots of  c x instructions of kernels that only move data
            + d x launches

The coefficients are positive. The logarithm of each is a prior mean plus an effect of the kind's
root (the group of kinds it belongs to) plus a deviation of the kind. Effects and deviations have a
ridge penalty; the loss is Huber's, of the logarithm of the time. Every execution mode (eager,
compiled, training, ...) has coefficients of its own, shrunk to those of its parent mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import HAS_FLOPS, KERNEL_KINDS
from forerun.features.networks.features import LAUNCH_S, Chip, Chips, peak_flops
from forerun.features.networks.kernel_floor import small_batch_seconds

PARENTS: Mapping[str, str] = {
    "eager": "",
    "eager_nhwc": "eager",
    "compiled": "eager",
    "training": "eager",
    "training_nhwc": "training",
    "cpu": "compiled",
}
"""Execution mode -> parent mode, whose coefficients are its prior mean."""

INSTRUCTIONS_PER_BYTE = 20.0
"""Column operations that one byte of traffic stands for. Of 0, 8, 12 and 20 this value gave the
lowest error of a fit on the RTX 3090 for the RTX 4090 and the reverse."""

_ROOT_RIDGE = 0.05
_KIND_RIDGE = 3.0
_RIDGE_SCALE = 1e-4
_HUBER = 0.1
_STEPS = 100
_FEWEST_ROWS = 30
_SHORTEST_S = 1e-9
_LOG_BOUNDS = (-8.0, 5.0)
_TRAFFIC_PRIOR = float(np.log(0.5))
"""Prior log coefficient of the traffic of matrix products, most of which overlaps arithmetic."""
_LAUNCH_PRIOR = float(np.log(0.6))

_PRODUCTS = [kind for kind in KERNEL_KINDS if kind.is_product]
_PRODUCT_ROOTS = {kind.root for kind in _PRODUCTS}
_CLASS_OF_ROOT = {kind.root: kind.op_class for kind in reversed(KERNEL_KINDS)}
"""Class of the first kind of a root: unknown operators have the root of elementwise ones."""
_MOVERS = {k.root: _CLASS_OF_ROOT[k.root] for k in KERNEL_KINDS if k.root not in _PRODUCT_ROOTS}
_MOVED_BY = np.array([[k.root == root for k in KERNEL_KINDS] for root in _MOVERS], dtype=np.float64)
_WITH_FLOPS = np.flatnonzero(HAS_FLOPS)


class _Term(NamedTuple):
    name: str
    root: str
    op_class: str
    prior: float


_TERMS = (
    *(_Term(f"compute:{k.name}", f"compute:{k.root}", k.op_class, 0.0) for k in _PRODUCTS),
    *(
        _Term(
            f"memory:{k.name}",
            f"memory:{k.root}",
            k.op_class,
            _TRAFFIC_PRIOR if k.root in _PRODUCT_ROOTS else 0.0,
        )
        for k in KERNEL_KINDS
    ),
    *(_Term(f"vector:{root}", f"vector:{root}", _MOVERS[root], 0.0) for root in _MOVERS),
    _Term("launch", "launch", "", _LAUNCH_PRIOR),
)
COLUMNS: tuple[str, ...] = tuple(term.name for term in _TERMS)
"""Terms of the sum, in order."""
CLASS_OF_COLUMN: tuple[str, ...] = tuple(term.op_class for term in _TERMS)
"""Operator class of each term; the empty string for launches, which belong to no class."""
ROOTS: tuple[str, ...] = tuple(dict.fromkeys(term.root for term in _TERMS))
"""Groups of terms that share an effect; their shares of the time are features of the boosters."""

ROOT_OF_COLUMN = np.array([ROOTS.index(term.root) for term in _TERMS])
COMPUTE_COLUMNS = slice(0, len(_WITH_FLOPS))
_PRIOR = np.array([term.prior for term in _TERMS])


def execution_mode(query: Query) -> str:
    """The execution mode of a network query, a key of `PARENTS`."""
    network, software = query.workload, query.software
    if query.device.kind == "cpu":
        return "cpu"
    nhwc = "_nhwc" if software.layout == "nhwc" else ""
    if isinstance(network, Network) and network.phase == "training":
        return f"training{nhwc}"
    return "compiled" if software.fuses else f"eager{nhwc}"


def design_row(seconds: Matrix, chip: Chip) -> Column:
    """One row of the design matrix, from `forerun.features.networks.features.kind_seconds`.

    Args:
        seconds: (3, len(KERNEL_KINDS)); seconds of arithmetic, seconds of traffic, launches.
        chip: the device at the precision of the run.

    Returns:
        (len(COLUMNS),) seconds of each term at coefficient 1.
    """
    compute, memory, launches = seconds
    vector = _MOVED_BY @ memory * (chip.bandwidth / chip.vector * INSTRUCTIONS_PER_BYTE)
    return np.concatenate([compute[_WITH_FLOPS], memory, vector, [launches.sum() * LAUNCH_S]])


@dataclass(frozen=True)
class AdditiveLatencyModel:
    """Fitted coefficients of the additive time, one set for each execution mode.

    Attributes:
        logs: execution mode -> (len(COLUMNS),) logarithms of the coefficients.
    """

    logs: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        design_matrix: Matrix,
        log_seconds: Column,
        modes: Sequence[str],
        weights: Column | None = None,
    ) -> "AdditiveLatencyModel":
        """Fit the coefficients of each execution mode, parents before children.

        Args:
            design_matrix: (n, len(COLUMNS)) rows of `design_row`.
            log_seconds: n logarithms of the measured seconds.
            modes: n execution modes; one with fewer than 30 rows keeps its parent's coefficients.
            weights: n positive weights; None for equal weights.
        """
        labels = np.array(modes)
        logs: dict[str, Column] = {}
        for mode, parent in PARENTS.items():
            prior = logs[parent] if parent else _PRIOR
            rows = np.flatnonzero(labels == mode)
            if len(rows) < _FEWEST_ROWS:
                logs[mode] = prior
                continue
            weight = np.ones(len(rows)) if weights is None else weights[rows]
            logs[mode] = _ridge(design_matrix[rows], log_seconds[rows], prior, weight)
        return cls(logs)

    def terms(self, design_matrix: Matrix, modes: Sequence[str]) -> Matrix:
        """Seconds of each term of n runs, shape (n, len(COLUMNS)).

        Args:
            design_matrix: (n, len(COLUMNS)) rows of `design_row`.
            modes: n execution modes.
        """
        coefficients = self._coefficients
        if len(design_matrix) == 1:
            return np.asarray(design_matrix * coefficients[modes[0]])
        labels, scaled = np.array(modes), np.empty_like(design_matrix)
        for mode in np.unique(labels):
            rows = labels == mode
            scaled[rows] = design_matrix[rows] * coefficients[str(mode)]
        return scaled

    def kernel_seconds(
        self, kernels: Kernels, chip: Chip | Chips, batch_sizes: Column, mode: str
    ) -> Matrix:
        """Seconds of each kernel, shape (b, n), none below its time at a small batch.

        On c devices the shape is (c, b, n).

        The coefficients are fitted to a sum over kinds, which holds for large batches only. This
        sum over kernels also holds for small batches, and never falls with the batch size.

        Args:
            kernels: n launched kernels.
            chip: the device at the run's precision, or c devices.
            batch_sizes: (b,) samples in one run.
            mode: execution mode, one of `PARENTS`.
        """
        coefficients, _ = self.by_kind[mode]
        peak = peak_flops(chip, kernels.tensor, kernels.is_conv)
        samples = batch_sizes[:, None]
        compute = (kernels.work * samples + kernels.fixed_work) / peak
        memory = (kernels.traffic * samples + kernels.fixed_traffic) / chip.bandwidth
        vector = memory * (chip.bandwidth / chip.vector * INSTRUCTIONS_PER_BYTE)
        arithmetic, traffic, instructions = coefficients[:, kernels.kind]
        spent = compute * arithmetic + memory * traffic + vector * instructions
        return np.asarray(np.maximum(spent, small_batch_seconds(kernels, chip) * kernels.repeat))

    @cached_property
    def by_kind(self) -> Mapping[str, tuple[Matrix, float]]:
        """Execution mode -> coefficients by kind of kernel, and the coefficient of a launch.

        The former have the shape (3, len(KERNEL_KINDS)): arithmetic, traffic and instructions, zero
        where a kind has no such term.
        """
        by_mode = {}
        compute, end = len(_WITH_FLOPS), len(_WITH_FLOPS) + len(KERNEL_KINDS)
        for mode, coefficients in self._coefficients.items():
            rows = np.zeros((3, len(KERNEL_KINDS)))
            rows[0, _WITH_FLOPS] = coefficients[:compute]
            rows[1] = coefficients[compute:end]
            rows[2] = coefficients[end:-1] @ _MOVED_BY
            by_mode[mode] = (rows, float(coefficients[-1]))
        return by_mode

    @cached_property
    def _coefficients(self) -> Mapping[str, Column]:
        return {mode: np.exp(logs) for mode, logs in self.logs.items()}


def root_shares(terms: Matrix) -> Matrix:
    """Share of each root in the additive time, shape (n, len(ROOTS)).

    Args:
        terms: (n, len(COLUMNS)) seconds of each term.
    """
    total = terms.sum(axis=1, keepdims=True) + _SHORTEST_S
    return np.asarray((terms / total) @ _BY_ROOT)


def log_seconds_of(terms: Matrix) -> Column:
    """Logarithm of the summed seconds, shape (n,).

    Args:
        terms: (n, len(COLUMNS)) seconds of each term.
    """
    return np.asarray(np.log(terms.sum(axis=1) + _SHORTEST_S))


def _ridge(design_matrix: Matrix, target: Column, prior: Column, weights: Column) -> Column:
    """Log coefficients: prior + root effects + deviations, by penalised Huber loss."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # No row informs a term that takes no time: its deviation stays zero, its root's effect applies.
    live = np.flatnonzero(design_matrix.max(axis=0) > 0)
    part, start, root = (
        np.ascontiguousarray(design_matrix[:, live]),
        prior[live],
        ROOT_OF_COLUMN[live],
    )
    weights = weights / weights.mean()
    n, roots = len(target), len(ROOTS)

    def loss(free: Column) -> tuple[float, Column]:
        effects, own = free[:roots], free[roots:]
        terms = part * np.exp(np.clip(start + effects[root] + own, *_LOG_BOUNDS))
        total = terms.sum(axis=1) + _SHORTEST_S
        error = np.log(total) - target
        absolute = np.abs(error)
        huber = np.where(absolute < _HUBER, error**2 / (2 * _HUBER), absolute - _HUBER / 2)
        slope = np.clip(error / _HUBER, -1, 1) * weights
        gradient = (slope / total) @ terms / n
        value = (huber @ weights) / n + _RIDGE_SCALE * (
            _KIND_RIDGE * (own @ own) + _ROOT_RIDGE * (effects @ effects)
        )
        shrunk = 2 * _RIDGE_SCALE
        of_roots = np.bincount(root, weights=gradient, minlength=roots)
        return float(value), np.concatenate(
            [
                of_roots + shrunk * _ROOT_RIDGE * effects,
                gradient + shrunk * _KIND_RIDGE * own,
            ]
        )

    with threadpool_limits(1):
        solution = minimize(
            loss,
            np.zeros(roots + len(live)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _STEPS},
        )
    logs = prior + solution.x[:roots][ROOT_OF_COLUMN]
    logs[live] += solution.x[roots:]
    return np.asarray(np.clip(logs, *_LOG_BOUNDS))


_BY_ROOT = np.eye(len(ROOTS))[ROOT_OF_COLUMN]
