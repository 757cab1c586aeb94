"""Features of circuits that are not placed: cells that are joined are near."""

import numpy as np
import pytest

from forerun.data.circuits.netlist import Connections, Netlist
from forerun.data.datasets.circuits.circuit_fpga import designs
from forerun.features.circuits.structure import (
    EQUAL_PS,
    FEATURES,
    NO_PATH_PS,
    STEPS,
    netlist_features,
)
from tests.contracts.tiny_circuits import tiny_tables


def netlist(pairs, count, port="O") -> Netlist:
    source, sink = np.array(pairs, dtype=np.intp).T
    ports = [port] * len(source)
    none = np.zeros(0, dtype=np.intp)
    return Netlist(
        np.zeros(count, dtype=np.intp),
        Connections(source, ports, sink, ["I0"] * len(sink)),
        Connections(none, [], none, []),
        np.zeros(0),
        np.zeros(0, dtype=np.bool_),
    )


def two_groups(each=20, seed=0):
    """Two groups of cells that are joined among themselves, and one connection between them."""
    draw = np.random.default_rng(seed)
    pairs = {(0, each)}
    for first in (0, each):
        for cell in range(each):
            others = first + draw.choice(each, 4, replace=False)
            pairs |= {(first + cell, int(other)) for other in others if other != first + cell}
    return sorted(pairs), 2 * each


def column(features, name):
    return features[:, FEATURES.index(name)]


def test_each_connection_has_a_value_of_each_feature():
    pairs, count = two_groups()
    found = netlist_features(netlist(pairs, count))
    assert found.shape == (len(pairs), len(FEATURES))
    assert np.isfinite(found).all()


def test_the_ends_of_a_connection_between_two_groups_are_not_alike():
    pairs, count = two_groups()
    bridge = pairs.index((0, 20))
    found = netlist_features(netlist(pairs, count))
    for steps in STEPS:
        assert np.argmin(column(found, f"alike_{steps}")) == bridge


def test_a_net_all_over_a_strip_has_longer_connections_than_those_between_neighbours():
    """A strip of three times thirty cells, and one more that drives a cell of each column."""
    cell = np.arange(90).reshape(30, 3)
    along = np.column_stack([cell[:-1].ravel(), cell[1:].ravel()])
    across = np.column_stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()])
    everywhere = np.column_stack([np.full(30, 90), cell[:, 1]])
    pairs = np.concatenate([along, across, everywhere]).tolist()
    found = netlist_features(netlist(pairs, 91))
    apart = column(found, "ranks_2")
    assert np.median(apart[-30:]) > 3.0 * np.median(apart[:-30])
    assert column(found, "net_extent_1")[-1] == column(found, "net_extent_1").max()


def test_the_order_of_connections_does_not_count():
    pairs, count = two_groups()
    order = np.random.default_rng(1).permutation(len(pairs))
    found = netlist_features(netlist(pairs, count))
    mixed = netlist_features(netlist([pairs[row] for row in order], count))
    assert mixed == pytest.approx(found[order], abs=1e-2)


def test_degrees_are_counted_without_carries():
    pairs = [(0, 1), (0, 2), (3, 1), (4, 0)]
    found = netlist_features(netlist(pairs, 30))
    assert column(found, "fan_out").tolist() == [2, 2, 1, 1]
    assert column(found, "source_drives").tolist() == [2, 2, 1, 1]
    assert column(found, "sink_driven_by").tolist() == [2, 1, 2, 1]
    carried = netlist_features(netlist(pairs, 30, port="COUT"))
    assert column(carried, "source_drives").tolist() == [0, 0, 0, 0]
    assert column(carried, "source_carries").tolist() == [3, 3, 1, 1]


def test_connections_of_the_longest_path_have_no_slack():
    """Six chains of three gates between registers."""
    own = next(iter(designs(tiny_tables(1)))).netlist
    found = netlist_features(own)
    slack, share = column(found, "slack_ps"), column(found, "path_share")
    assert slack.tolist() == [0.0] * len(slack)
    assert share.tolist() == [1.0] * len(share)
    period = 540 + 4 * EQUAL_PS + 3 * 400 + 470
    assert column(found, "period_ps").tolist() == [period] * len(slack)
    assert set(column(found, "before_ps")) == {540.0 + n * (EQUAL_PS + 400.0) for n in range(4)}


def test_connections_on_no_path_between_registers_are_marked():
    pairs, count = two_groups()
    found = netlist_features(netlist(pairs, count))
    assert (column(found, "slack_ps") == NO_PATH_PS).all()
    assert (column(found, "path_share") == 0.0).all()


def test_circuits_of_a_few_cells_have_no_spectrum():
    found = netlist_features(netlist([(0, 1), (1, 2)], 3))
    assert column(found, "ranks_4").tolist() == [0.0, 0.0]
