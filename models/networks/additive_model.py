"""The time of a network as a sum over the kinds of kernels it launches, fitted by ridge.

    seconds = sum over kinds of  a x arithmetic at peak  +  b x traffic at full bandwidth
            + sum over roots of  c x instructions of what only moves data
            + d x launches

The coefficients are positive; their logarithms are a prior plus an effect of the kind's root plus
the kind's own deviation, both shrunk to zero, under Huber's loss of the logarithm of the time. Ways
of running (eager, compiled, training, ...) have coefficients of their own, shrunk to those of the
way they resemble.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import HAS_FLOPS, KERNEL_KINDS
from forerun.features.networks.features import LAUNCH_S, Chip, peak_flops
from forerun.features.networks.kernel_floor import shortest_seconds

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

PARENTS: Mapping[str, str] = {
    "eager": "",
    "eager_nhwc": "eager",
    "compiled": "eager",
    "training": "eager",
    "training_nhwc": "training",
    "cpu": "compiled",
}
"""Way of running -> the one it is shrunk to."""

INSTRUCTIONS_PER_BYTE = 20.0
"""Vector operations a byte of traffic counts for: of 0, 8, 12 and 20 the one with which RTX 3090
and RTX 4090 predicted each other best."""

_ROOT_RIDGE = 0.05
_KIND_RIDGE = 3.0
_RIDGE_SCALE = 1e-4
_HUBER = 0.1
_STEPS = 100
_FEWEST_ROWS = 30
_SHORTEST_S = 1e-9
_LOG_BOUNDS = (-8.0, 5.0)
_TRAFFIC_PRIOR = float(np.log(0.5))
"""Of products: most of their traffic hides behind arithmetic."""
_LAUNCH_PRIOR = float(np.log(0.6))

_KINDS = [kind.name for kind in KERNEL_KINDS]
_ROOT_OF_KIND = [kind.root for kind in KERNEL_KINDS]
_PRODUCT_ROOTS = {_ROOT_OF_KIND[i] for i in np.flatnonzero(HAS_FLOPS)}
_MOVERS = list(dict.fromkeys(r for r in _ROOT_OF_KIND if r not in _PRODUCT_ROOTS))
_MOVED_BY = np.array([[r == mover for r in _ROOT_OF_KIND] for mover in _MOVERS], dtype=np.float64)
_WITH_FLOPS = np.flatnonzero(HAS_FLOPS)

COLUMNS: tuple[str, ...] = (
    *(f"compute:{_KINDS[i]}" for i in _WITH_FLOPS),
    *(f"memory:{name}" for name in _KINDS),
    *(f"vector:{root}" for root in _MOVERS),
    "launch",
)
"""Terms of the sum, in order."""

_COLUMN_ROOTS = (
    *(f"compute:{_ROOT_OF_KIND[i]}" for i in _WITH_FLOPS),
    *(f"memory:{root}" for root in _ROOT_OF_KIND),
    *(f"vector:{root}" for root in _MOVERS),
    "launch",
)
ROOTS: tuple[str, ...] = tuple(dict.fromkeys(_COLUMN_ROOTS))
"""What terms are shrunk toward; their shares of the time are features of the boosters."""

ROOT_OF_COLUMN = np.array([ROOTS.index(root) for root in _COLUMN_ROOTS])
COMPUTE_COLUMNS = slice(0, len(_WITH_FLOPS))

_PRIOR = np.array(
    [
        _LAUNCH_PRIOR
        if name == "launch"
        else _TRAFFIC_PRIOR
        if root.startswith("memory:") and root.split(":")[1] in _PRODUCT_ROOTS
        else 0.0
        for name, root in zip(COLUMNS, _COLUMN_ROOTS, strict=True)
    ]
)
_CLASS_OF_KIND = [kind.op_class for kind in KERNEL_KINDS]
_CLASS_OF_ROOT = {kind.root: kind.op_class for kind in KERNEL_KINDS}
CLASS_OF_COLUMN: tuple[str, ...] = (
    *(_CLASS_OF_KIND[i] for i in _WITH_FLOPS),
    *_CLASS_OF_KIND,
    *(_CLASS_OF_ROOT[root] for root in _MOVERS),
    "",
)
"""Operator class of each term; launches belong to none."""


def execution_mode(query: Query) -> str:
    """The way a network query runs, one of `PARENTS`."""
    network, software = query.workload, query.software
    if query.device.kind == "cpu":
        return "cpu"
    nhwc = "_nhwc" if software.layout == "nhwc" else ""
    if isinstance(network, Network) and network.phase == "training":
        return f"training{nhwc}"
    return "compiled" if software.fuses else f"eager{nhwc}"


def design_row(seconds: Matrix, chip: Chip) -> Column:
    """One row of terms from `forerun.features.networks.features.kind_seconds`.

    Args:
        seconds: (3, len(KERNEL_KINDS)) arithmetic and traffic in seconds, launches.
        chip: the device.

    Returns:
        (len(COLUMNS),) seconds of each term at coefficient 1.
    """
    compute, memory, launches = seconds
    vector = _MOVED_BY @ memory * (chip.bandwidth / chip.vector * INSTRUCTIONS_PER_BYTE)
    return np.concatenate([compute[_WITH_FLOPS], memory, vector, [launches.sum() * LAUNCH_S]])


@dataclass(frozen=True)
class AdditiveLatencyModel:
    """Coefficients by way of running.

    Attributes:
        logs: way -> (len(COLUMNS),) logarithms of the coefficients.
    """

    logs: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        design: Matrix,
        log_seconds: Column,
        modes: Sequence[str],
        weights: Column | None = None,
    ) -> "AdditiveLatencyModel":
        """Fit the coefficients of each way of running, parents before children.

        Args:
            design: (n, len(COLUMNS)) rows of `design_row`.
            log_seconds: n logarithms of the measured seconds.
            modes: n execution modes; one with fewer than 30 rows keeps its parent's coefficients.
            weights: n positive weights, equal ones where None.
        """
        labels = np.array(modes)
        logs: dict[str, Column] = {}
        for way, parent in PARENTS.items():
            prior = logs[parent] if parent else _PRIOR
            mine = np.flatnonzero(labels == way)
            if len(mine) < _FEWEST_ROWS:
                logs[way] = prior
                continue
            weight = np.ones(len(mine)) if weights is None else weights[mine]
            logs[way] = _ridge(design[mine], log_seconds[mine], prior, weight)
        return cls(logs)

    def terms(self, design: Matrix, modes: Sequence[str]) -> Matrix:
        """Seconds of each term, shape (n, len(COLUMNS))."""
        coefficients = self._coefficients
        if len(design) == 1:
            return np.asarray(design * coefficients[modes[0]])
        labels, scaled = np.array(modes), np.empty_like(design)
        for way in np.unique(labels):
            mine = labels == way
            scaled[mine] = design[mine] * coefficients[str(way)]
        return scaled

    def kernel_seconds(self, kernels: Kernels, chip: Chip, batch_size: float, way: str) -> Column:
        """Seconds of each kernel, shape (n,), none below what a kernel of any size takes.

        Unlike the sum over kinds that the coefficients are fitted to, this holds for small batches
        too, and never falls with the batch size.

        Args:
            kernels: n launched kernels.
            chip: the device at the run's precision.
            batch_size: samples in one run.
            way: execution mode, one of `PARENTS`.
        """
        coefficients, _ = self.by_kind[way]
        peak = peak_flops(chip, kernels.tensor, kernels.is_conv)
        compute = (kernels.work * batch_size + kernels.fixed_work) / peak
        memory = (kernels.traffic * batch_size + kernels.fixed_traffic) / chip.bandwidth
        vector = memory * (chip.bandwidth / chip.vector * INSTRUCTIONS_PER_BYTE)
        arithmetic, traffic, instructions = coefficients[:, kernels.kind]
        spent = compute * arithmetic + memory * traffic + vector * instructions
        return np.asarray(np.maximum(spent, shortest_seconds(kernels, chip) * kernels.repeat))

    @cached_property
    def by_kind(self) -> Mapping[str, tuple[Matrix, float]]:
        """Way -> coefficients of a kernel's arithmetic, traffic and instructions, and of a launch.

        The first have the shape (3, len(KERNEL_KINDS)), zero where a kind has no such term.
        """
        found = {}
        compute, end = len(_WITH_FLOPS), len(_WITH_FLOPS) + len(_KINDS)
        for way, coefficients in self._coefficients.items():
            rows = np.zeros((3, len(_KINDS)))
            rows[0, _WITH_FLOPS] = coefficients[:compute]
            rows[1] = coefficients[compute:end]
            rows[2] = coefficients[end:-1] @ _MOVED_BY
            found[way] = (rows, float(coefficients[-1]))
        return found

    @cached_property
    def _coefficients(self) -> Mapping[str, Column]:
        return {way: np.exp(logs) for way, logs in self.logs.items()}

    def to_json(self) -> dict[str, Any]:
        """Way -> term -> logarithm of its coefficient."""
        return {
            way: dict(zip(COLUMNS, logs.tolist(), strict=True)) for way, logs in self.logs.items()
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Mapping[str, float]]) -> "AdditiveLatencyModel":
        """What `to_json` wrote; a term that was not there then keeps its prior."""
        known = list(zip(COLUMNS, _PRIOR.tolist(), strict=True))
        return cls(
            {
                way: np.array([float(logs.get(name, prior)) for name, prior in known])
                for way, logs in content.items()
            }
        )


def root_shares(terms: Matrix) -> Matrix:
    """Share of each root in the time, shape (n, len(ROOTS))."""
    total = terms.sum(axis=1, keepdims=True) + _SHORTEST_S
    return np.asarray((terms / total) @ _BY_ROOT)


def log_seconds_of(terms: Matrix) -> Column:
    """Logarithm of the summed time, shape (n,)."""
    return np.asarray(np.log(terms.sum(axis=1) + _SHORTEST_S))


def _ridge(design: Matrix, target: Column, prior: Column, weights: Column) -> Column:
    """Prior + root effects + deviations that minimise Huber's loss with both shrunk."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # Terms without any time teach nothing: their deviation stays zero, their root's effect holds.
    live = np.flatnonzero(design.max(axis=0) > 0)
    part, start, root = np.ascontiguousarray(design[:, live]), prior[live], ROOT_OF_COLUMN[live]
    weights = weights / weights.mean()
    n, roots = len(target), len(ROOTS)

    def loss(free: Column) -> tuple[float, Column]:
        effects, own = free[:roots], free[roots:]
        terms = part * np.exp(np.clip(start + effects[root] + own, *_LOG_BOUNDS))
        total = terms.sum(axis=1) + _SHORTEST_S
        error = np.log(total) - target
        size = np.abs(error)
        huber = np.where(size < _HUBER, error**2 / (2 * _HUBER), size - _HUBER / 2)
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
        found = minimize(
            loss,
            np.zeros(roots + len(live)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _STEPS},
        )
    logs = prior + found.x[:roots][ROOT_OF_COLUMN]
    logs[live] += found.x[roots:]
    return np.asarray(np.clip(logs, *_LOG_BOUNDS))


_BY_ROOT = np.eye(len(ROOTS))[ROOT_OF_COLUMN]
