"""Runs of networks that differ in nothing but their batch size, which share most of their cost."""

from collections.abc import Sequence

from forerun.data.columns import groups_of
from forerun.data.query import Query
from forerun.features.operators.query_table import GraphKey


def equal_but_batch(queries: Sequence[Query]) -> list[list[int]]:
    """Positions of the queries, grouped by all that times depend on except the batch size.

    Raises:
        TypeError: a workload is no network.
    """
    return list(groups_of(map(_key, queries)).values())


def _key(query: Query) -> tuple[object, ...]:
    network = query.network
    graph = network.graph
    # The source of a graph decides its lowering, and is no part of its digest.
    return (
        *(GraphKey(graph), graph.source, network.precision, network.phase),
        *(query.device, query.software),
    )
