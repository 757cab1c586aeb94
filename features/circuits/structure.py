"""Features of the connections of an unplaced circuit: how close a placer will put their ends.

Placers shorten nets, so cells joined by many short paths end up next to each other. The distance of
two cells is estimated from the netlist graph in two ways: by the slowest-decaying eigenvectors of
its random walk, which are the coordinates that a quadratic placement would choose, and by the
correlation of random signals at both cells after some steps of that walk. Placers also shorten
connections on the longest paths most; the length of the path through a connection, with equal
delays for all connections, identifies them.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array

from forerun.data.circuits.netlist import CELL_KINDS, Netlist
from forerun.data.columns import Column, Mask, Matrix, Positions
from forerun.features.circuits.connections import fixed_connections, nets_of, port_codes
from forerun.features.circuits.longest_path import TimingGraph

AXES: Final = 4
"""Number of eigenvectors."""
STEPS: Final = (2, 4, 7, 12)
"""Steps of the walk after which signals are compared."""
SIGNALS: Final = 24
ITERATIONS: Final = 400
"""Iterations for computing the eigenvectors."""
BETWEEN: Final = 8
"""Iterations between orthogonalisations."""
CARRY_WEIGHT: Final = 4.0
"""Weight of a carry, whose ends are placed one above the other; other connections weigh one over
their net's number of sinks."""
CELLS_PER_TILE: Final = 8.0
"""Logic cells per tile of an iCE40."""
EQUAL_PS: Final = 700.0
"""Assumed delay of a routed connection before any is known."""
FIXED_PS: Final = 200.0
"""Assumed delay of a carry or a global connection."""
NO_PATH_PS: Final = 1e5
"""Slack of connections on no path between registers."""
ENDS: Final = ("source", "sink")
FEATURES: Final = (
    *("source_kind", "sink_kind", "source_port", "sink_port"),
    *("fan_out", "cells", "memories", "ports"),
    *(f"{end}_{what}" for end in ENDS for what in ("drives", "driven_by", "weight", "carries")),
    *(f"{end}_around_{far}_{what}" for end in ENDS for far in (1, 2)
      for what in ("drives", "driven_by", "weight")),
    *("ranks_2", "ranks_4", "net_extent_1", "net_extent_2"),
    *(f"alike_{steps}" for steps in STEPS),
    *("period_ps", "before_ps", "after_ps", "slack_ps", "path_share"),
)  # fmt: skip
"""Names of the columns of `netlist_features`."""


def netlist_features(netlist: Netlist) -> Matrix:
    """Features of the m connections, shape (m, len(FEATURES)).

    Args:
        netlist: cells and connections; placement is not needed.
    """
    return features_on_paths(features_around(netlist), TimingGraph.of(netlist), fixed_of(netlist))


def features_on_paths(around: Matrix, graph: TimingGraph, fixed: Mask) -> Matrix:
    """Features of the m connections of a timing graph, shape (m, len(FEATURES)).

    Args:
        around: (m, k) clock-independent features, from `features_around`.
        graph: the paths of a circuit, or of one of its clocks.
        fixed: (m,) whether a connection is not routed freely.
    """
    return np.column_stack([around, *_on_paths(graph, fixed)])


def fixed_of(netlist: Netlist) -> Mask:
    """Whether each connection's delay is independent of routing, shape (m,)."""
    return fixed_connections(netlist.arcs, netlist.kinds)


def features_around(netlist: Netlist) -> Matrix:
    """The clock-independent features of the m connections, shape (m, k)."""
    graph = _Graph.of(netlist)
    arcs = netlist.arcs
    ends = arcs.source, arcs.sink
    net, fan_out = nets_of(arcs)
    of_cells = np.column_stack([graph.drives, graph.driven_by, graph.weight])
    near = graph.walk @ of_cells
    far = graph.walk @ near
    ranks = graph.ranks(AXES)
    everywhere = np.ones(len(arcs))
    columns = [
        *(netlist.kinds[end] for end in ends),
        *port_codes(arcs),
        fan_out[net],
        len(netlist.kinds) * everywhere,
        *(
            (netlist.kinds == CELL_KINDS.index(kind)).sum() * everywhere
            for kind in ("memory", "port")
        ),
        *(values[end] for end in ends for values in (*of_cells.T, graph.carries)),
        *(column[end] for end in ends for table in (near, far) for column in table.T),
        *(
            np.abs(ranks[ends[0], :number] - ranks[ends[1], :number]).sum(axis=1)
            for number in (2, 4)
        ),
        *(_extent(ranks[:, axis], net, *ends) for axis in (0, 1)),
        *graph.alike(*ends),
    ]
    return np.column_stack(columns).astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Graph:
    """The n cells and the attraction of their connections.

    Attributes:
        adjacency: (n, n) symmetric weights.
        walk: (n, n) the weights of each cell over their sum.
        weight: (n,) this sum.
        drives, driven_by: (n,) numbers of freely routed connections.
        carries: (n,) number of carries.
    """

    adjacency: csr_array
    walk: csr_array
    weight: Column
    drives: Positions
    driven_by: Positions
    carries: Positions

    @classmethod
    def of(cls, netlist: Netlist) -> Self:
        """The graph of a netlist, without clocks and global networks."""
        arcs, count = netlist.arcs, len(netlist.kinds)
        fixed = fixed_connections(arcs, netlist.kinds)
        carried: Mask = np.array([port == "COUT" for port in arcs.source_port], dtype=np.bool_)
        net, fan_out = nets_of(arcs)
        weights = np.where(carried, CARRY_WEIGHT, np.where(fixed, 0.0, 1.0 / fan_out[net]))
        one_way = coo_array((weights, (arcs.source, arcs.sink)), shape=(count, count)).tocsr()
        both = (one_way + one_way.T).tocsr()
        weight = np.asarray(both.sum(axis=1)).ravel()
        return cls(
            both,
            (diags_array(1.0 / np.maximum(weight, 1e-9)) @ both).tocsr(),
            weight,
            np.bincount(arcs.source[~fixed], minlength=count),
            np.bincount(arcs.sink[~fixed], minlength=count),
            np.bincount(
                np.concatenate([arcs.source[carried], arcs.sink[carried]]), minlength=count
            ),
        )

    def ranks(self, number: int) -> Matrix:
        """Coordinates of the cells as ranks of their values in eigenvectors, (n, number).

        They are in tiles, with cells spread evenly over the square that they need. All are zero for
        circuits of a few cells. Subspace iteration from a fixed start gives the same vectors in
        every run, even where eigenvalues are equal.
        """
        count = len(self.weight)
        if count <= 2 * number + 3:
            return np.zeros((count, number))
        root = np.sqrt(self.weight + 1e-3)
        scaled = diags_array(1.0 / root) @ self.adjacency @ diags_array(1.0 / root)
        vectors = np.random.default_rng(0).standard_normal((count, 2 * number + 1))
        for step in range(ITERATIONS):
            vectors = 0.5 * (vectors + scaled @ vectors)
            if step % BETWEEN == 0 or step == ITERATIONS - 1:
                vectors = np.linalg.qr(vectors)[0]
        _, turn = np.linalg.eigh(vectors.T @ (scaled @ vectors))
        places = (vectors @ turn)[:, ::-1][:, 1 : number + 1] / root[:, None]
        side = np.sqrt(count / CELLS_PER_TILE)
        ranks = places.argsort(axis=0, kind="stable").argsort(axis=0) / (count - 1)
        return np.asarray(side * ranks)

    def alike(self, sources: Positions, sinks: Positions) -> list[Column]:
        """Correlation of random signals at both ends after each of `STEPS`, (m,) each."""
        signals = np.random.default_rng(0).standard_normal((len(self.weight), SIGNALS))
        found = []
        for step in range(1, max(STEPS) + 1):
            signals = 0.5 * signals + 0.5 * (self.walk @ signals)
            if step in STEPS:
                centred = signals - signals.mean(axis=0)
                centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
                found.append(np.einsum("ij,ij->i", centred[sources], centred[sinks]))
        return found


def _on_paths(graph: TimingGraph, fixed: Mask) -> list[Column]:
    """Period, times before and after each connection, and its slack, (m,) each.

    All connections have equal delays: `EQUAL_PS`, and `FIXED_PS` for those not routed freely. A
    connection on no path between registers has a slack of `NO_PATH_PS`.
    """
    net_ps = np.where(fixed, FIXED_PS, EQUAL_PS)
    before, after = graph.through_ps(net_ps)
    period = float(graph.period_ps(net_ps[:, None])[0])
    path = before + net_ps + after
    known = np.isfinite(path)
    return [
        np.full(len(path), period),
        np.where(np.isfinite(before), before, -1.0),
        np.where(np.isfinite(after), after, -1.0),
        np.where(known, period - path, NO_PATH_PS),
        np.where(known, path / max(period, 1.0), 0.0),
    ]


def _extent(places: Column, net: Positions, sources: Positions, sinks: Positions) -> Column:
    """Largest coordinate difference among the cells of each connection's net, (m,)."""
    nets = int(net.max(initial=-1)) + 1
    low, high = np.full(nets, np.inf), np.full(nets, -np.inf)
    for cells in (sources, sinks):
        np.minimum.at(low, net, places[cells])
        np.maximum.at(high, net, places[cells])
    return np.asarray((high - low)[net])
