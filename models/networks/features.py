"""Feature matrices of network queries: features, terms of the additive time, execution modes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names, Positions
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.lowering import Kernels, LoweringMode, lower, lowered, lowering_mode
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS
from forerun.features.networks.features import (
    NETWORK_FEATURES,
    chip_of,
    kind_seconds,
    network_features,
)
from forerun.features.operators.kinds import CLASS_CODE, OPERATOR_CLASSES
from forerun.models.adaptation.support_gp import graph_digests
from forerun.models.networks.additive_model import (
    CLASS_OF_COLUMN,
    COLUMNS,
    COMPUTE_COLUMNS,
    ROOTS,
    design_row,
    execution_mode,
    log_seconds_of,
    root_shares,
)

FEATURES: tuple[str, ...] = (
    *NETWORK_FEATURES,
    *(f"time_share_{root}" for root in ROOTS),
    "log_time_over_roofline",
    "compute_time_share",
    "launch_time_share",
)
"""Columns of the residual booster's matrix. The direct booster uses the first `DIRECT` of them,
which do not depend on fitted coefficients."""

DIRECT = len(NETWORK_FEATURES)
_FLAGS = frozenset(("on_cpu", "compiled", "nhwc", "training", "autocast", "half"))
RANGED = np.array([i for i in range(DIRECT) if FEATURES[i] not in _FLAGS], dtype=np.intp)
"""Positions of the features that have a range: all except flags."""

FEW_GRAPHS = 64
"""Number of graphs in one call up to which their lowerings and encodings are cached; with more,
digests would cost more than they save."""

_TINY = 1e-12
CLASS_OF_KERNEL_KIND = np.array([CLASS_CODE[kind.op_class] for kind in KERNEL_KINDS])
"""Position in `OPERATOR_CLASSES` of each kind of kernel."""
_COLUMN_IN_CLASS = np.array(
    [[name == op_class for op_class in OPERATOR_CLASSES] for name in CLASS_OF_COLUMN],
    dtype=np.float64,
)


@dataclass(frozen=True)
class NetworkRows(Columns):
    """Features of n network queries.

    Attributes:
        features: (n, len(NETWORK_FEATURES)).
        log_roofline: (n,) logarithm of the summed roofline seconds of the kernels.
        design_matrix: (n, len(COLUMNS)) seconds of each term of the additive time at
            coefficient 1.
        modes: (n,) execution modes.
        launches: (n, len(OPERATOR_CLASSES)) share of each class in the launches.
    """

    features: Matrix
    log_roofline: Column
    design_matrix: Matrix
    modes: Names
    launches: Matrix

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "NetworkRows":
        """Rows in the order of the queries; each graph is lowered once for each lowering mode.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
            TypeError: a workload is no network.
        """
        n = len(queries)
        rows = cls(
            np.empty((n, len(NETWORK_FEATURES))),
            np.empty(n),
            np.empty((n, len(COLUMNS))),
            np.array([execution_mode(query) for query in queries], dtype=np.str_),
            np.empty((n, len(OPERATOR_CLASSES))),
        )
        for indices, kernels in _by_kernels(queries):
            for row in indices:
                rows._fill(row, queries[row], kernels)
        return rows

    @property
    def usual(self) -> Mask:
        """Rows of mixed-precision inference on a GPU in nchw, shape (n,)."""
        autocast = self.features[:, FEATURES.index("autocast")] > 0
        return np.asarray(autocast & np.isin(self.modes, ("eager", "compiled")))

    @property
    def fused(self) -> Mask:
        """Rows whose runtime fuses operators, shape (n,)."""
        return np.isin(self.modes, ("compiled", "cpu"))

    def matrix(self, terms: Matrix) -> tuple[Matrix, Column]:
        """Features of the residual booster, (n, len(FEATURES)), and log seconds, (n,).

        Args:
            terms: (n, len(COLUMNS)) seconds of each term of the additive time.
        """
        log_seconds = log_seconds_of(terms)
        total = terms.sum(axis=1) + _TINY
        fitted = (
            log_seconds - self.log_roofline,
            terms[:, COMPUTE_COLUMNS].sum(axis=1) / total,
            terms[:, -1] / total,
        )
        parts = [self.features, root_shares(terms), np.stack(fitted, axis=1)]
        return np.concatenate(parts, axis=1), log_seconds

    def class_shares(self, terms: Matrix) -> Matrix:
        """Share of each operator class in the additive time, shape (n, len(OPERATOR_CLASSES)).

        Args:
            terms: (n, len(COLUMNS)) seconds of each term.
        """
        by_class = terms @ _COLUMN_IN_CLASS + terms[:, -1:] * self.launches
        return np.asarray(by_class / (by_class.sum(axis=1, keepdims=True) + _TINY))

    def _fill(self, row: int, query: Query, kernels: Kernels) -> None:
        network = query.network
        chip = chip_of(query.device, network.precision)
        features, roofline = network_features(kernels, chip, network, query.software)
        self.features[row] = features
        self.log_roofline[row] = np.log(roofline)
        seconds = kind_seconds(kernels, chip, float(network.batch_size))
        self.design_matrix[row] = design_row(seconds, chip)
        launches = np.bincount(
            CLASS_OF_KERNEL_KIND, weights=seconds[2], minlength=len(OPERATOR_CLASSES)
        )
        self.launches[row] = launches / max(1.0, launches.sum())


@dataclass(frozen=True)
class TrainingRows(Columns):
    """n training rows: features, measured times and groups.

    Attributes:
        rows: features of the queries.
        log_measured: (n,) logarithm of the measured seconds.
        weights: (n,) weight of each row.
        device, family: (n,) groups that calibration holds out.
        same: (n,) codes; equal for runs of one graph on one device.
    """

    rows: NetworkRows
    log_measured: Column
    weights: Column
    device: Names
    family: Names
    same: Positions

    @classmethod
    def of(cls, measurements: Measurements) -> "TrainingRows":
        """The rows with a latency and a positive weight.

        Args:
            measurements: networks with `latency_ms` and the groups `device` and `family`.
        """
        kept = with_latency(measurements)
        device = kept.groups["device"]
        pairs = [f"{d} {g}" for d, g in zip(device, graph_digests(kept.queries), strict=True)]
        return cls(
            NetworkRows.of(kept.queries),
            np.log(kept.values["latency_ms"] / 1e3),
            np.ones(len(kept)) if kept.weights is None else kept.weights,
            device,
            kept.groups["family"],
            np.unique(pairs, return_inverse=True)[1],
        )

    def __len__(self) -> int:
        return len(self.rows)


def with_latency(measurements: Measurements) -> Measurements:
    """The rows with a latency and a positive weight."""
    latency, weights = measurements.values["latency_ms"], measurements.weights
    # NaN compares false: rows without a latency are left out.
    counted = True if weights is None else weights > 0
    return measurements.take((latency > 0) & counted)


def rows_by_lowering(
    queries: Sequence[Query],
) -> list[tuple[OperatorGraph, dict[LoweringMode, list[int]]]]:
    """Graphs of networks, with the positions of the queries that lower each in each mode.

    Raises:
        TypeError: a workload is no network.
    """
    by_graph: dict[int, tuple[OperatorGraph, dict[LoweringMode, list[int]]]] = {}
    for row, query in enumerate(queries):
        network = query.network
        mode = lowering_mode(network.graph, network.precision, query.software)
        _, modes = by_graph.setdefault(id(network.graph), (network.graph, {}))
        modes.setdefault(mode, []).append(row)
    return list(by_graph.values())


def _by_kernels(queries: Sequence[Query]) -> Iterator[tuple[list[int], Kernels]]:
    """Positions of the queries that share a lowering, and its kernels; grouped by graph."""
    by_graph = rows_by_lowering(queries)
    keep = len(by_graph) <= FEW_GRAPHS
    for graph, modes in by_graph:
        kernels = (lowered(graph, m) for m in modes) if keep else lower(graph, tuple(modes))
        yield from zip(modes.values(), kernels, strict=True)
