"""Features of connections: distances, nets and demand, counted by hand and by plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.circuits.netlist import CELL_KINDS, Circuit, Connections, Netlist, Placement
from forerun.features.circuits.connections import (
    FEATURES,
    PORTS,
    WINDOW,
    fixed_connections,
    placed_features,
)

NONE = Connections(np.zeros(0, np.intp), [], np.zeros(0, np.intp), [])


def circuit(places, arcs, kinds=None):
    """Cells at (x, y, z), and connections (source, port, sink, port)."""
    source, out, sink, into = zip(*arcs, strict=True)
    kinds = np.zeros(len(places), np.intp) if kinds is None else np.array(kinds, dtype=np.intp)
    ends = np.array(source, dtype=np.intp), list(out), np.array(sink, dtype=np.intp), list(into)
    netlist = Netlist(kinds, Connections(*ends), NONE, np.zeros(0), np.zeros(0, np.bool_))
    x, y, z = np.array(places, dtype=np.intp).T
    return Circuit(netlist, Placement(x, y, z, 100.0 + np.arange(len(arcs))))


def columns(own):
    return dict(zip(FEATURES, placed_features(own).T.tolist(), strict=True))


def test_a_net_with_two_sinks_by_hand():
    """From (2, 3) to (5, 1) and (5, 1): 3 columns and 2 rows, 3 by 2 tiles, two sinks in one."""
    own = columns(
        circuit(
            [(2, 3, 4), (5, 1, 0), (5, 1, 7)],
            [(0, "O", 1, "I3"), (0, "O", 2, "CEN")],
        )
    )
    expected = {
        "source_x": 2, "source_y": 3, "source_z": 4, "sink_x": 5, "sink_y": 1,
        "columns": 3, "rows": -2, "columns_apart": 3, "rows_apart": 2, "distance": 5,
        "fan_out": 2, "net_width": 3, "net_height": 2, "sinks_in_tile": 2,
        "sinks_around": 2, "sources_around": 2, "source_port": PORTS.index("O"),
    }  # fmt: skip
    for name, value in expected.items():
        assert own[name] == [value, value], name
    assert own["sink_z"] == [0, 7]
    assert own["sink_port"] == [PORTS.index("I3"), PORTS.index("CEN")]
    assert own["estimated_ps"] == [100.0, 101.0]
    # One net of four by three tiles: its half perimeter over its twelve tiles.
    assert own["demand"] == pytest.approx([7 / 12] * 2)


def test_bits_of_a_memory_share_a_code_and_unknown_ports_have_the_last_one():
    arcs = [(0, "RDATA_3", 1, "WADDR_10"), (0, "RDATA_12", 1, "SURPRISE")]
    own = columns(circuit([(1, 1, 0), (2, 2, 0)], arcs))
    assert own["source_port"] == [PORTS.index("RDATA")] * 2
    assert own["sink_port"] == [PORTS.index("WADDR"), len(PORTS)]


def test_carries_clocks_and_global_nets_are_not_routed():
    spread = CELL_KINDS.index("global")
    arcs = [(0, "COUT", 1, "CIN"), (0, "O", 1, "CLK"), (2, "X", 1, "SR"), (0, "O", 1, "SR")]
    own = circuit([(1, 1, 0)] * 3, arcs, kinds=[0, 0, spread])
    fixed = fixed_connections(own.netlist.arcs, own.netlist.kinds)
    assert fixed.tolist() == [True, True, True, False]


TILE = st.integers(0, 12)


@given(st.data())
def test_counts_around_a_tile_and_demand_are_those_of_plain_loops(data):
    places = data.draw(st.lists(st.tuples(TILE, TILE, st.integers(0, 7)), min_size=2, max_size=12))
    cell = st.integers(0, len(places) - 1)
    arcs = [
        (a, "O", b, "I0")
        for a, b in data.draw(st.lists(st.tuples(cell, cell), min_size=1, max_size=20))
    ]
    own = columns(circuit(places, arcs))

    def near(cell, end):
        x, y, _ = places[cell]
        tiles = (places[arc[end]] for arc in arcs)
        return sum(abs(u - x) <= WINDOW and abs(v - y) <= WINDOW for u, v, _ in tiles)

    assert own["sinks_around"] == [near(b, 2) for _, _, b, _ in arcs]
    assert own["sources_around"] == [near(a, 0) for a, _, _, _ in arcs]
    boxes = {}
    for a, _, b, _ in arcs:
        boxes.setdefault(a, [places[a][:2]]).append(places[b][:2])
    wires = np.zeros((13, 13))
    for pins in boxes.values():
        (left, low), (right, high) = np.min(pins, axis=0), np.max(pins, axis=0)
        width, height = right - left + 1, high - low + 1
        wires[left : right + 1, low : high + 1] += (width + height) / (width * height)
    for row, (a, _, b, _) in enumerate(arcs):
        (left, low), (right, high) = (
            f([places[a][:2], places[b][:2]], axis=0) for f in (np.min, np.max)
        )
        crossed = wires[left : right + 1, low : high + 1]
        assert own["demand"][row] == pytest.approx(crossed.mean())
