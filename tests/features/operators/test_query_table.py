"""Queries as operators: equal graphs share a table, gathered rows belong to their query."""

import numpy as np

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.query_table import gather, graph_table, query_table

CATALOG = DeviceCatalog.load()
RELU = Operator("elementwise", "relu", ((4, 32),), ((4, 32),))
LINEAR = Operator("linear", "fc", ((4, 32),), ((4, 8),), 256, inputs=(0,))


def graph():
    return OperatorGraph((RELU, LINEAR), batch_size=4)


def test_equal_graphs_share_one_table():
    assert graph_table(graph()) is graph_table(graph())


def test_a_network_is_scaled_to_the_querys_batch():
    table = query_table(Network(graph(), batch_size=12))
    np.testing.assert_array_equal(table.out_elements, [12 * 32, 12 * 8])


def test_a_training_query_gets_its_backward_pass():
    assert len(query_table(Network(graph(), 4, "fp32", "training"))) > 2


def test_gathered_operators_keep_their_owner_and_their_device():
    a, b = CATALOG.get("a10"), CATALOG.get("t4")
    queries = [
        Query(Network(graph(), 4), a),
        Query(Kernel(RELU), b),
        Query(Kernel(LINEAR), a),
        Query(Network(graph(), 8, "fp16"), a),
    ]
    found = {}
    for part in gather(queries):
        for owner in part.owner:
            found.setdefault(int(owner), []).append((part.device.name, part.precision))
    assert found == {
        0: [("a10", "fp32")] * 2,
        1: [("t4", "fp32")],
        2: [("a10", "fp32")],
        3: [("a10", "fp16")] * 2,
    }
