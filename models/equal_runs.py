"""Runs of networks that differ in nothing but their batch size, which share most of their cost."""

from collections.abc import Hashable, Sequence

from forerun.data.columns import groups_of
from forerun.data.query import Query

RunKey = tuple[Hashable, ...]


def equal_but_batch(queries: Sequence[Query]) -> dict[RunKey, list[int]]:
    """All that times depend on except the batch size -> positions of the queries that it is of.

    Raises:
        TypeError: a workload is no network.
    """
    return groups_of(map(run_key, queries))


def run_key(query: Query) -> RunKey:
    """All that times of a network depend on except the batch size.

    Raises:
        TypeError: the workload is no network.
    """
    return (query.device, *on_any_device(query))


def batch_key(query: Query) -> RunKey:
    """All that times of a network depend on.

    Raises:
        TypeError: the workload is no network.
    """
    return (*run_key(query), query.network.batch_size)


def on_any_device(query: Query) -> RunKey:
    """All that times of a network depend on except the batch size and the device.

    Raises:
        TypeError: the workload is no network.
    """
    network = query.network
    graph = network.graph
    # The source of a graph decides its lowering, and is no part of its digest.
    how = (network.precision, network.phase, network.training, network.inference)
    return (graph.digest, graph.source, *how, query.software)
