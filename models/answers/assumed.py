"""Limits by what was assumed: by the reader of a graph, and of the arithmetic of a device."""

from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload, Workload, operator_graph
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.models.answers.wording import readable
from forerun.models.limit import LATENCY, Limit


def assumed_in_reading(workload: Workload) -> list[Limit]:
    """A limit for each assumption that reading the graph made."""
    if not isinstance(workload, OperatorWorkload):
        return []
    return [Limit(readable(line), LATENCY) for line in operator_graph(workload).assumptions]


def other_arithmetic(query: Query) -> list[Limit]:
    """A limit where the device has no peak rate for the requested precision."""
    if not isinstance(query.workload, OperatorWorkload):
        return []
    wanted = COMPUTE_PRECISION[query.run.precision]
    used = query.device.computes_in(wanted)
    if used == wanted:
        return []
    return [Limit(f"the device's sheet has no {wanted} peak; its {used} rate is taken", LATENCY)]
