"""Features of the connections of a placed circuit that are known before routing."""

from typing import Final

import numpy as np

from forerun.data.circuits.netlist import CELL_KINDS, CLOCK_PORTS, Circuit, Connections, Placement
from forerun.data.columns import Column, Mask, Matrix, Positions

PORTS: Final = (
    *("O", "COUT", "I0", "I1", "I2", "I3", "CIN", "CEN", "SR", "CLK"),
    *("D_IN_0", "D_OUT_0", "GLOBAL_BUFFER_OUTPUT", "USER_SIGNAL_TO_GLOBAL_BUFFER"),
    *("RDATA", "RADDR", "RCLK", "RE", "RCLKE", "WDATA", "WADDR", "MASK", "WCLK", "WE", "WCLKE"),
)
"""Names of ports without bit numbers; all others share one code."""
FEATURES: Final = (
    *("source_kind", "sink_kind", "source_port", "sink_port"),
    *("source_x", "source_y", "source_z", "sink_x", "sink_y", "sink_z"),
    *("columns", "rows", "columns_apart", "rows_apart", "distance"),
    *("fan_out", "net_width", "net_height", "sinks_in_tile"),
    *("sinks_around", "sources_around", "demand"),
    "estimated_ps",
)
"""Names of the columns of `placed_features`."""
WINDOW: Final = 2
"""Tiles in each direction within which pins count as nearby."""


def fixed_connections(arcs: Connections, kinds: Positions) -> Mask:
    """Whether each connection's delay is independent of routing, shape (m,).

    These are the carry chain, wired within a column of tiles, and the global networks.
    """
    carried = np.array([port == "COUT" for port in arcs.source_port], dtype=np.bool_)
    clocked = np.array([port in CLOCK_PORTS for port in arcs.sink_port], dtype=np.bool_)
    spread = np.isin(kinds, CELL_KINDS.index("global"))
    return np.asarray(carried | clocked | spread[arcs.source] | spread[arcs.sink])


def placed_features(circuit: Circuit) -> Matrix:
    """Features of the m connections, shape (m, len(FEATURES)).

    Args:
        circuit: a placed circuit.
    """
    netlist, place = circuit.netlist, circuit.placement
    assert place is not None
    arcs = netlist.arcs
    a, b = arcs.source, arcs.sink
    ports = port_codes(arcs)
    right, up = place.x[b] - place.x[a], place.y[b] - place.y[a]
    net, fan_out = nets_of(arcs)
    box = _Boxes.of(net, place, arcs)
    columns = [
        *(netlist.kinds[a], netlist.kinds[b], *ports),
        *(place.x[a], place.y[a], place.z[a], place.x[b], place.y[b], place.z[b]),
        *(right, up, np.abs(right), np.abs(up), np.abs(right) + np.abs(up)),
        *(fan_out[net], box.width[net], box.height[net]),
        _same(net, place.x[b], place.y[b]),
        _around(place.x[b], place.y[b])[place.x[b], place.y[b]],
        _around(place.x[a], place.y[a])[place.x[a], place.y[a]],
        _between(box.demand(), place, arcs),
        place.estimated_ps,
    ]
    return np.column_stack(columns).astype(np.float64)


class _Boxes:
    """Bounding boxes, in tiles, of the pins of each net."""

    def __init__(self, left: Positions, right: Positions, low: Positions, high: Positions) -> None:
        self.left, self.right, self.low, self.high = left, right, low, high
        self.width, self.height = right - left, high - low

    @classmethod
    def of(cls, net: Positions, place: Placement, arcs: Connections) -> "_Boxes":
        nets = int(net.max(initial=-1)) + 1
        ends = []
        for at in (place.x, place.y):
            low, high = np.full(nets, np.iinfo(np.intp).max), np.full(nets, -1)
            for cells in (arcs.source, arcs.sink):
                np.minimum.at(low, net, at[cells])
                np.maximum.at(high, net, at[cells])
            ends += [low, high]
        return cls(*ends)

    def demand(self) -> Matrix:
        """Estimated wire demand in each tile, as RUDY (Spindler and Johannes 2007): a net's half
        perimeter spread evenly over the tiles of its bounding box.
        """
        sides = (int(self.right.max(initial=0)) + 2, int(self.high.max(initial=0)) + 2)
        found = np.zeros(sides)
        width, height = self.width + 1.0, self.height + 1.0
        share = (width + height) / (width * height)
        for x, y, sign in (
            (self.left, self.low, 1.0),
            (self.right + 1, self.low, -1.0),
            (self.left, self.high + 1, -1.0),
            (self.right + 1, self.high + 1, 1.0),
        ):
            np.add.at(found, (x, y), sign * share)
        return np.asarray(found.cumsum(axis=0).cumsum(axis=1))


def port_codes(arcs: Connections) -> tuple[Positions, Positions]:
    """Positions in `PORTS` of both ends' ports, each (m,); `len(PORTS)` for others."""
    known = {name: code for code, name in enumerate(PORTS)}

    def code(port: str) -> int:
        return known.get(port) or known.get(port.rstrip("_0123456789"), len(PORTS))

    codes = {port: code(port) for port in {*arcs.source_port, *arcs.sink_port}}
    codes["O"] = 0
    source, sink = (
        np.array([codes[port] for port in ports], dtype=np.intp)
        for ports in (arcs.source_port, arcs.sink_port)
    )
    return source, sink


def nets_of(arcs: Connections) -> tuple[Positions, Positions]:
    """Net of each connection, (m,), and the number of connections of each net."""
    number: dict[tuple[int, str], int] = {}
    pairs = zip(arcs.source.tolist(), arcs.source_port, strict=True)
    net = np.array([number.setdefault(pair, len(number)) for pair in pairs], dtype=np.intp)
    return net, np.bincount(net, minlength=len(number))


def _same(net: Positions, x: Positions, y: Positions) -> Positions:
    """Number of connections of the same net to the same tile, shape (m,)."""
    keys = (net * 256 + x) * 256 + y
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[group])


def _around(x: Positions, y: Positions) -> Matrix:
    """Pins within `WINDOW` tiles of each tile."""
    pins = np.zeros((int(x.max(initial=0)) + 1, int(y.max(initial=0)) + 1))
    np.add.at(pins, (x, y), 1.0)
    for axis in (0, 1):
        sums = np.concatenate([np.zeros_like(pins.take([0], axis)), pins.cumsum(axis)], axis)
        at = np.arange(pins.shape[axis])
        ends = np.minimum(at + WINDOW + 1, len(at))
        pins = sums.take(ends, axis) - sums.take(np.maximum(at - WINDOW, 0), axis)
    return pins


def _between(values: Matrix, place: Placement, arcs: Connections) -> Column:
    """Mean tile value over the rectangle between both ends of each connection, (m,)."""
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    sums[1:, 1:] = values.cumsum(axis=0).cumsum(axis=1)
    (left, right), (low, high) = (
        (np.minimum(at[arcs.source], at[arcs.sink]), np.maximum(at[arcs.source], at[arcs.sink]) + 1)
        for at in (place.x, place.y)
    )
    total = sums[right, high] - sums[left, high] - sums[right, low] + sums[left, low]
    return np.asarray(total / ((right - left) * (high - low)))
