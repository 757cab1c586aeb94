"""Limits by what was assumed: by the reader of a graph, and of the arithmetic of a device."""

from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Network, OperatorWorkload, Workload, operator_graph
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.models.answers.wording import readable
from forerun.models.limit import LATENCY, PEAK_MEMORY, Limit

MANY = 8
"""Convolutions of a network that hardly trains without norms."""
FOLDED = (
    "the file has no norms, which exports for inference fold into convolutions: training takes "
    "more than this; export the network in training mode"
)


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
    if isinstance(workload, Network) and workload.phase == "training" and _norms_are_folded(graph):
        limits += [Limit(FOLDED, metric) for metric in (LATENCY, PEAK_MEMORY)]
    return limits


def _norms_are_folded(graph: OperatorGraph) -> bool:
    """Whether a file has many convolutions and no norm, as exports for inference have."""
    kinds = [op.kind for op in graph.operators]
    norms = {"batch_norm", "group_norm", "layer_norm"}
    return graph.source == "onnx" and kinds.count("conv") >= MANY and norms.isdisjoint(kinds)


def other_arithmetic(query: Query) -> list[Limit]:
    """A limit where the device has no peak rate for the requested precision."""
    if not isinstance(query.workload, OperatorWorkload):
        return []
    wanted = COMPUTE_PRECISION[query.run.precision]
    used = query.device.computes_in(wanted)
    if used == wanted:
        return []
    return [Limit(f"the device's sheet has no {wanted} peak; its {used} rate is taken", LATENCY)]
