"""Queries about a processor as rows of work, and what its sheet tells about its rates."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from math import log, log2

import numpy as np

from forerun.data.device import Device
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.operators.query_table import GraphKey
from forerun.features.processors.work import CACHE_BYTES, COLUMNS, work_of
from forerun.models.processors.rates import COUNT, Column, RateRows

PLAIN_CORE_TFLOPS = 0.1
"""fp32 peak of one core of the processors trained on: 32 FLOPs a cycle at about 3 GHz."""
SHEET_KNOWN = 0.5
"""Deviation of all rates together that is left where the sheet gives the peak of a core, over that
where it does not: peaks of the catalogue's cores explain three quarters of its variance."""
ESTIMATED = "derived: estimated from"


def latency_rows(
    queries: Sequence[Query],
    usual_threads: float | None = None,
    log_ms: Column | None = None,
    noise: Column | None = None,
) -> RateRows:
    """Queries as rows; unmeasured without `log_ms`.

    Args:
        queries: on one device.
        usual_threads: where a query gives none; all cores of the device's own sheet when None too,
            and one where it has no sheet.
        log_ms: (n,) measured.
        noise: (n,) relative standard deviation of the measurements.
    """
    count = len(queries)
    graphs = [_graph(query) for query in queries]
    sizes = [getattr(query.workload, "batch_size", 1) for query in queries]
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


def threads_of(query: Query, usual: float | None = None) -> float:
    """Threads that compute."""
    cores = None if _is_estimated(query.device, "compute_units") else query.device.compute_units
    return float(query.software.threads or usual or cores or 1)


def structure_of(graph: OperatorGraph) -> str:
    """Equal for graphs that differ in the batch alone: a hash of weights, attributes and shapes.

    Shapes enter without their first dimension.
    """
    return _structure(GraphKey(graph))


@lru_cache(maxsize=1024)
def _structure(key: GraphKey) -> str:
    if len(key.graph) == 1:
        # A single operator has no batch: all its dimensions are its own.
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
    """What a sheet adds to log seconds per unit, (2 columns,), and what it leaves of the doubt.

    Figures that were estimated from measurements tell nothing: the measurements do.
    """
    shift = np.zeros(2 * COUNT)
    peak = device.peak_tflops.get("fp32")
    estimated = _is_estimated(device, "peak_tflops.fp32")
    if peak is None or device.compute_units is None or estimated:
        return shift, 1.0
    slower = log(PLAIN_CORE_TFLOPS / (peak / device.compute_units))
    for place, (_, term) in enumerate(COLUMNS):
        shift[place] = slower if term == "flops" else slower / 2
    return shift, SHEET_KNOWN


def _graph(query: Query) -> OperatorGraph:
    run = query.run
    return OperatorGraph((run.operator,)) if isinstance(run, Kernel) else run.graph


def _is_network(query: Query) -> bool:
    return query.workload.kind == "network"


def _cache(query: Query) -> float:
    device = query.device
    if device.l2_mib is None or _is_estimated(device, "l2_mib"):
        return CACHE_BYTES
    # A virtual machine and other threads have their part of it.
    return min(2 * CACHE_BYTES, device.l2_mib * 2**20 / 2)


def _is_estimated(device: Device, figure: str) -> bool:
    return device.sources.get(figure, "").startswith(ESTIMATED)
