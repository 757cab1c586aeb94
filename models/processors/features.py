"""Queries about a CPU as rows of work, and the prior of its rates from its spec sheet."""

import hashlib
from collections.abc import Sequence
from math import log, log2

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import batch_size_of, operator_graph
from forerun.features.caches import OPERATORS_KEPT, GraphKey, kept_by_graph
from forerun.features.processors.work import CACHE_BYTES, COLUMNS, work_by_node, work_of
from forerun.models.processors.rates import COUNT, RateRows

PLAIN_CORE_TFLOPS = 0.1
"""fp32 peak of one core of the CPUs in the training set: 32 FLOPs per cycle at about 3 GHz."""
SHEET_KNOWN = 0.5
"""Factor on the standard deviation common to all rates if the sheet gives the peak per core:
peaks of the catalogue's cores explain three quarters of the variance."""
ESTIMATED = "derived: estimated from"


def latency_rows(
    queries: Sequence[Query],
    usual_threads: float | None = None,
    log_ms: Column | None = None,
    noise: Column | None = None,
) -> RateRows:
    """Queries as rows of work.

    Args:
        queries: n networks or operators on one device.
        usual_threads: number of threads of queries that give none. If None, all cores on the
            device's sheet, or one without a sheet.
        log_ms: (n,) logarithm of the measured milliseconds; NaN for all if None.
        noise: (n,) relative standard deviation of the measurements; 0.03 if None.
    """
    count = len(queries)
    graphs = [operator_graph(query.run) for query in queries]
    sizes = [batch_size_of(query.workload) or 1 for query in queries]
    amounts = [
        work_of(
            graph, size / graph.batch_size if _is_network(query) else 1.0, _cache(query)
        ).amounts
        for query, graph, size in zip(queries, graphs, sizes, strict=True)
    ]
    return RateRows(
        np.array(amounts).reshape(count, COUNT),
        np.array([log2(threads_of(query, usual_threads)) for query in queries]),
        np.array([log2(size) for size in sizes], dtype=np.float64),
        np.array([structure_of(graph) for graph in graphs], dtype=np.str_),
        np.array([_is_network(query) for query in queries], dtype=np.bool_),
        np.full(count, np.nan) if log_ms is None else log_ms,
        np.full(count, 0.03) if noise is None else noise,
    )


def node_amounts(query: Query) -> tuple[Matrix, tuple[Operator, ...], Column]:
    """Work of each node of a query, as returned by `work_by_node`."""
    graph, size = operator_graph(query.run), batch_size_of(query.workload) or 1
    factor = size / graph.batch_size if _is_network(query) else 1.0
    return work_by_node(graph, factor, _cache(query))


def threads_of(query: Query, usual: float | None = None) -> float:
    """Number of computing threads: the query's, else `usual`, else the device's cores, else one.

    Several instances without a thread count share the cores equally. Threads beyond the cores have
    no effect.
    """
    cores = None if _is_estimated(query.device, "compute_units") else query.device.compute_units
    threads_asked = query.software.threads if cores is None else query.software.threads_on(cores)
    threads = float(threads_asked or usual or cores or 1)
    return threads if cores is None else min(threads, float(cores))


def structure_of(graph: OperatorGraph) -> str:
    """A hash of a graph that does not depend on the batch size.

    It covers kinds, weights, attributes, connections and shapes without their first dimension.
    """
    return _structure(GraphKey(graph))


@kept_by_graph(4 * OPERATORS_KEPT)
def _structure(key: GraphKey) -> str:
    if len(key.graph) == 1:
        # A single operator has no batch dimension, so all its dimensions count.
        return key.graph.digest
    content = [
        (
            op.kind,
            op.parameter_elements,
            sorted((k, str(v)) for k, v in op.attributes.items()),
            [s[1:] if op.batched else s for s in op.output_shapes],
            op.inputs,
        )
        for op in key.graph.operators
    ]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def sheet_shift(device: Device) -> tuple[Column, float]:
    """Shift of the prior mean of log seconds per unit, and factor on its common deviation.

    Figures estimated from measurements are ignored, because the measurements are used directly.

    Returns:
        (2 * COUNT,) shift, zero for the slopes; factor, `SHEET_KNOWN` or 1.
    """
    shift = np.zeros(2 * COUNT)
    peak = device.peak_tflops.get("fp32")
    estimated = _is_estimated(device, "peak_tflops.fp32")
    if peak is None or device.compute_units is None or estimated:
        return shift, 1.0
    slower = log(PLAIN_CORE_TFLOPS / (peak / device.compute_units))
    for index, (_, term) in enumerate(COLUMNS):
        shift[index] = slower if term == "flops" else slower / 2
    return shift, SHEET_KNOWN


def _is_network(query: Query) -> bool:
    return query.workload.kind == "network"


def _cache(query: Query) -> float:
    device = query.device
    if device.l2_mib is None or _is_estimated(device, "l2_mib"):
        return CACHE_BYTES
    # Other virtual machines and threads share the cache.
    return min(2 * CACHE_BYTES, device.l2_mib * 2**20 / 2)


def _is_estimated(device: Device, figure: str) -> bool:
    return device.sources.get(figure, "").startswith(ESTIMATED)
