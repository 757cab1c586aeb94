"""Workloads as they come over HTTP, with the graphs that they name looked up."""

from collections.abc import Callable

from forerun.data.graph import FORMAT, OperatorGraph
from forerun.data.workload import Kernel, Network
from forerun.features.readers.operator_json import graph_of
from forerun.service.schemas import KernelIn, NetworkIn, OperatorIn


def workload_of(
    given: KernelIn | NetworkIn,
    graph_named: Callable[[str], OperatorGraph],
    where: str = "workload",
) -> Kernel | Network:
    """The workload, every field of its graph checked.

    Args:
        given: by digest, or with the graph in place.
        graph_named: digest -> graph.
        where: named in messages.

    Raises:
        UnknownGraph: there is no graph of that digest.
        UnreadableModel: the graph or operator in place cannot be.
    """
    if isinstance(given, KernelIn):
        content = {"format": FORMAT, "operators": [given.operator.to_json()]}
        graph = graph_of(content, f"{where}.operator")
        return Kernel(graph.operators[0], given.precision)
    if isinstance(given.graph, str):
        graph = graph_named(given.graph)
    else:
        graph = graph_of(given.graph, f"{where}.graph")
    return Network(graph, given.batch_size, given.precision, given.phase)


def workload_in(workload: Kernel | Network) -> KernelIn | NetworkIn:
    """The workload as `workload_of` takes it, a network's graph by its digest."""
    if isinstance(workload, Network):
        return NetworkIn(
            kind="network",
            graph=workload.graph.digest,
            batch_size=workload.batch_size,
            precision=workload.precision,
            phase=workload.phase,
        )
    (row,) = OperatorGraph((workload.operator,)).to_json()["operators"]
    fields = {name: row[name] for name in OperatorIn.model_fields if name in row}
    operator = OperatorIn.model_validate(fields)
    return KernelIn(kind="kernel", operator=operator, precision=workload.precision)
