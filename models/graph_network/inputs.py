"""Inputs of the graph network: features of runs of a kernel graph on devices.

The device enters by ratios only: a kernel's seconds over those of its launch, arithmetic over
traffic, activations over the shared cache, tiles over compute units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Matrix
from forerun.data.query import Query
from forerun.features.lowering.kernels import TILE
from forerun.features.lowering.mode import casts_of, torch_version
from forerun.features.networks.features import LAUNCH_S, Chip
from forerun.features.networks.kernel_graph import KernelGraph
from forerun.models.networks.additive_model import (
    INSTRUCTIONS_PER_BYTE,
    PARENTS,
    AdditiveLatencyModel,
    execution_mode,
)

PAIR_FEATURES: tuple[str, ...] = (
    "log_seconds_over_launch",
    "log_intensity",
    "log_activations_over_l2",
    "log_waves",
    "wave_fill",
    "log_share",
)
"""Features of one kernel in one run."""

MODES = tuple(PARENTS)
RUN_FEATURES: tuple[str, ...] = (
    "log_batch",
    "log_seconds_over_launches",
    "log_launches",
    "torch_version",
    "autocast",
    "half",
    *MODES,
)
"""Features of one run."""

DOMAIN_FEATURES: tuple[str, ...] = (
    *("log_batch", "log_launches", "log_seconds_over_launches"),
    *(f"mean_{name}" for name in PAIR_FEATURES[:-1]),
)
"""Features whose ranges define the training domain; means are weighted by the additive time."""

_TINY = 1e-12


@dataclass(frozen=True)
class Runs:
    """Features of q runs of one kernel graph of n kernels, in any execution modes.

    Attributes:
        busy: (q, n) seconds of each kernel by the additive model, without launches.
        launch: (q, n) seconds of its launches.
        pairs: (q, n, len(PAIR_FEATURES)) features of each kernel in each run.
        runs: (q, len(RUN_FEATURES)) features of each run.
    """

    busy: Matrix
    launch: Matrix
    pairs: Matrix
    runs: Matrix

    def inputs(self, part: slice) -> dict[str, NDArray[Any]]:
        """Inputs of the head for q runs, by name; the p = q n pairs of a kernel and a run flat."""
        busy_launch = np.stack([self.busy[part], self.launch[part]], axis=2)
        q, n = busy_launch.shape[:2]
        return {
            "node_index": np.tile(np.arange(n), q),
            "run_batch": np.repeat(np.arange(q), n),
            "pairs": self.pairs[part].reshape(q * n, -1),
            "seconds": busy_launch.reshape(q * n, 2),
            "runs": self.runs[part],
        }

    @property
    def log_base(self) -> Column:
        """Logarithm of the additive time in seconds, shape (q,)."""
        return np.asarray(np.log((self.busy + self.launch).sum(axis=1) + _TINY))

    @property
    def domain(self) -> Matrix:
        """Values of `DOMAIN_FEATURES`, shape (q, len(DOMAIN_FEATURES))."""
        terms = self.busy + self.launch
        share = terms / (terms.sum(axis=1, keepdims=True) + _TINY)
        means = np.einsum("qn,qnf->qf", share, self.pairs[:, :, :-1])
        return np.concatenate([self.runs[:, [0, 2, 1]], means], axis=1)


def runs_of(
    graph: KernelGraph,
    queries: Sequence[Query],
    chips: Sequence[Chip],
    times: Sequence[AdditiveLatencyModel],
) -> Runs:
    """Features of q runs of one kernel graph.

    Args:
        graph: n distinct kernels.
        queries: q networks that are lowered to this graph.
        chips: the device of each query at its precision.
        times: additive model of each query.
    """
    kernels = graph.kernels
    modes = [execution_mode(query) for query in queries]
    batch = np.array([query.network.batch_size for query in queries], dtype=np.float64)[:, None]
    matrix, vector, bandwidth, units, l2 = (
        np.array([getattr(chip, name) for chip in chips])[:, None]
        for name in ("matrix", "vector", "bandwidth", "units", "l2_bytes")
    )
    by_kind = [model.by_kind[mode] for model, mode in zip(times, modes, strict=True)]
    coefficients = np.array([rows for rows, _ in by_kind])[:, :, kernels.kind]
    launch = np.array([launch for _, launch in by_kind])[:, None] * LAUNCH_S * kernels.repeat
    activations = kernels.traffic * batch
    peak = np.where(kernels.tensor, matrix, vector)
    compute = (kernels.work * batch + kernels.fixed_work) / peak
    memory = (activations + kernels.fixed_traffic) / bandwidth
    moved = memory * (bandwidth / vector * INSTRUCTIONS_PER_BYTE)
    busy = coefficients[:, 0] * compute + coefficients[:, 1] * memory + coefficients[:, 2] * moved
    waves = np.ceil(kernels.m * batch / TILE) * kernels.tiles_across / units
    whole = (busy + launch) * graph.count
    share = whole / (whole.sum(axis=1, keepdims=True) + _TINY)
    pairs = np.stack(
        [
            _log(busy / launch, -6.0, 12.0) / 4.0,
            _log(compute / (memory + _TINY), -6.0, 6.0) / 3.0,
            _log(activations / l2, -8.0, 8.0) / 4.0,
            kernels.is_product * _log(waves, -3.0, 6.0) / 3.0,
            kernels.is_product * waves / np.ceil(waves + 1e-9),
            _log(share, -12.0, 0.0) / 4.0,
        ],
        axis=2,
    )
    busy, launch = busy * graph.count, launch * graph.count
    launches = max(float(graph.count @ kernels.repeat), 1.0)
    over = np.log((busy.sum(axis=1) + _TINY) / (launch.sum(axis=1) + _TINY))
    runs = [
        *(np.log(batch[:, 0]) / 5.0, np.clip(over, -6.0, 8.0) / 3.0),
        np.full(len(queries), np.log(launches) / 5.0 - 1.0),
        np.array([_software(query, mode) for query, mode in zip(queries, modes, strict=True)]),
    ]
    return Runs(busy, launch, pairs, np.column_stack(runs))


def _software(query: Query, mode: str) -> list[float]:
    """Values of `RUN_FEATURES` from `torch_version` on for one query."""
    casts = casts_of(query.network.precision)
    return [
        (torch_version(query.software) - 2.0) * 10.0,
        *(casts == "autocast", casts == "half"),
        *(mode == known for known in MODES),
    ]


def _log(values: Matrix, low: float, high: float) -> Matrix:
    return np.clip(np.log(np.maximum(values, _TINY)), low, high)
