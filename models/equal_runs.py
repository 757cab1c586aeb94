"""Groups network runs that differ only in batch size and therefore share most of their cost."""

from collections.abc import Hashable, Sequence

from forerun.data.columns import groups_of
from forerun.data.query import Query

RunKey = tuple[Hashable, ...]


def equal_but_batch(queries: Sequence[Query]) -> dict[RunKey, list[int]]:
    """Group network queries by everything but batch size: run key -> positions.

    Raises:
        TypeError: a workload is not a network.
    """
    return groups_of(map(run_key, queries))


def run_key(query: Query) -> RunKey:
    """Everything that determines a network's time except the batch size.

    Raises:
        TypeError: the workload is not a network.
    """
    return (query.device, *on_any_device(query))


def batch_key(query: Query) -> RunKey:
    """Everything that determines a network's time.

    Raises:
        TypeError: the workload is not a network.
    """
    return (*run_key(query), query.network.batch_size)


def on_any_device(query: Query) -> RunKey:
    """Everything that determines a network's time except batch size and device.

    Raises:
        TypeError: the workload is not a network.
    """
    network = query.network
    graph = network.graph
    # A graph's source affects its lowering but is not part of its digest.
    how = (network.precision, network.phase, network.training, network.inference)
    return (graph.digest, graph.source, *how, query.software)
