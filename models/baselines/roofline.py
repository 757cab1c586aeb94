"""The roofline bound (Williams et al. 2009) as a predictor without parameters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import FUSING, Runtime, Software
from forerun.data.workload import Network, OperatorWorkload
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.lowering import lowered
from forerun.features.lowering.kernels import IS_PRODUCT
from forerun.features.lowering.mode import LoweringMode, lowering_mode
from forerun.features.operators.kinds import IS_GEMM, OPERATOR_CLASSES
from forerun.features.operators.query_table import MOST_TOGETHER, graph_table, query_table
from forerun.features.operators.roofline import rooflines_ms, traffic_bytes
from forerun.features.operators.table import OperatorTable
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.prediction import Predictions


@dataclass(frozen=True)
class Roofline(StoredPredictor):
    """Latency as a sum over operators of the longer of arithmetic and memory traffic at peak.

    In runtimes that fuse operators, those between products have the traffic of the fused kernels.
    """

    name: ClassVar[str] = "roofline"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Whether the query is an operator or network on a device with a spec sheet."""
        return query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """Returns itself: there are no parameters."""
        return self

    def adapt(self, measurements: Measurements) -> Self:
        """Returns itself: there are no parameters."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The bound of each query, with its breakdown by operator class.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        values = np.zeros(len(queries))
        breakdowns: list[Mapping[str, float]] = [{}] * len(queries)
        alike = groups_of((id(query.run), query.software) for query in queries)
        for (_, software), rows in alike.items():
            devices = [queries[row].device for row in rows]
            bounds = _by_class_ms(queries[rows[0]].run, devices, software)
            for row, by_class in zip(rows, bounds, strict=True):
                breakdowns[row] = by_class
                values[row] = sum(by_class.values())
        return Predictions({"latency_ms": values}, breakdowns_ms=breakdowns)


def _by_class_ms(
    run: OperatorWorkload, devices: Sequence[Device], software: Software
) -> Iterator[Mapping[str, float]]:
    """Operator class -> roofline time of a run in milliseconds, on each device.

    Only classes that occur in the run are included.
    """
    table = query_table(run)
    if isinstance(run, Network) and software.runtime in _FUSED:
        fused = software.model_copy(update={"runtime": "compiled"})
        table = _as_fused(table, run, fused)
    present = np.flatnonzero(np.bincount(table.op_class)).tolist()
    step = max(1, MOST_TOGETHER // max(1, len(table)))
    for first in range(0, len(devices), step):
        some = devices[first : first + step]
        for times in rooflines_ms(table, some, run.precision, software.framework == "torch"):
            sums = np.bincount(table.op_class, times * table.repeat, len(OPERATOR_CLASSES))
            yield {OPERATOR_CLASSES[code]: float(sums[code]) for code in present}


_FUSED: frozenset[Runtime] = FUSING | {"onnxruntime"}
"""Runtimes that fuse operators; ONNX Runtime's kernels are bounded like a compiler's."""


def _as_fused(table: OperatorTable, network: Network, software: Software) -> OperatorTable:
    """The operators with the traffic that remains between products once a compiler fuses them.

    The backward pass saves the same share as the forward pass; an optimizer step saves nothing.
    """
    # Casts are not operators, so both sides are counted in half precision.
    mode = lowering_mode(network.graph, "fp16", software)
    share = _traffic_left(GraphKey(network.graph), mode)
    fused = ~IS_GEMM[table.kind] & table.batched
    factor = np.where(fused, share, 1.0)
    return replace(
        table,
        in_elements=table.in_elements * factor,
        out_elements=table.out_elements * factor,
        parameter_elements=table.parameter_elements * factor,
    )


@kept_by_graph()
def _traffic_left(key: GraphKey, mode: LoweringMode) -> float:
    """Traffic of the fused kernels between products over that of their operators, at most 1."""
    kernels, table = lowered(key.graph, mode), graph_table(key.graph)
    between = ~IS_PRODUCT[kernels.kind]
    moved = kernels.traffic[between].sum() * key.graph.batch_size
    moved += kernels.fixed_traffic[between].sum()
    others = ~IS_GEMM[table.kind] & table.batched
    whole = float((traffic_bytes(table, "fp16") * table.repeat)[others].sum())
    return min(1.0, float(moved) / whole) if whole else 1.0
