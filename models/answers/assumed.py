"""Limits by what was assumed: by the reader of a graph, and of the arithmetic of a device."""

from forerun.data.query import Query
from forerun.data.workload import Network, OperatorWorkload, Workload, operator_graph
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.models.answers.wording import readable
from forerun.models.limit import LATENCY, Limit


def assumed_in_reading(workload: Workload) -> list[Limit]:
    """A limit for each assumption that reading the graph made, and for a batch that it fixes."""
    if not isinstance(workload, OperatorWorkload):
        return []
    graph = operator_graph(workload)
    limits = [Limit(readable(line), LATENCY) for line in graph.assumptions]
    fixed = graph.source == "onnx" and all(b.why != "batch" for b in graph.bound_dimensions)
    if isinstance(workload, Network) and fixed and workload.batch_size != graph.batch_size:
        line = (
            f"the file fixes its first dimension at {graph.batch_size:,}; everything is scaled "
            f"from there to a batch size of {workload.batch_size:,}"
        )
        limits.append(Limit(line, severity="note"))
    return limits


def other_arithmetic(query: Query) -> list[Limit]:
    """A limit where the device has no peak rate for the requested precision."""
    if not isinstance(query.workload, OperatorWorkload):
        return []
    wanted = COMPUTE_PRECISION[query.run.precision]
    used = query.device.computes_in(wanted)
    if used == wanted:
        return []
    return [Limit(f"the device's sheet has no {wanted} peak; its {used} rate is taken", LATENCY)]
