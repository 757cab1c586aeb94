"""Circuits on an FPGA: cells, the connections between them, and their placement.

Arrays are in the order of the tables of `circuit_fpga`. Circuits are compared by identity, because
many placements share one netlist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from forerun.data.columns import Column, Mask, Positions

CellKind = Literal["logic", "port", "global", "memory", "other"]
CLOCK_PORTS: Final = frozenset({"CLK", "RCLK", "WCLK"})
"""Clock inputs of registers and memories."""
CELL_KINDS: Final[tuple[CellKind, ...]] = ("logic", "port", "global", "memory", "other")


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections between m pairs of pins, or pairs of ports of m cells.

    Attributes:
        source, sink: (m,) cells.
        source_port, sink_port: names of their ports.
    """

    source: "Positions"
    source_port: Sequence[str]
    sink: "Positions"
    sink_port: Sequence[str]

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False, slots=True)
class Netlist:
    """Cells of an FPGA and their connections, independent of placement.

    Attributes:
        kinds: (n,) position of each cell's kind in `CELL_KINDS`.
        arcs: m connections from the driving port of a net to a port that it drives.
        paths: k pairs of ports of a cell, with the cell as both source and sink.
        path_ps: (k,) delay from the first port to the second, or setup time, picoseconds.
        is_setup: (k,) whether it is the setup time of the first port before the second's edge.
    """

    kinds: "Positions"
    arcs: Connections
    paths: Connections
    path_ps: "Column"
    is_setup: "Mask"


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Positions of the cells of a netlist, and the placer's delay estimates.

    Attributes:
        x, y: (n,) column and row of each cell's tile.
        z: (n,) number of the cell within its tile.
        estimated_ps: (m,) delay of each connection before routing, picoseconds.
    """

    x: "Positions"
    y: "Positions"
    z: "Positions"
    estimated_ps: "Column"


@dataclass(frozen=True, eq=False, slots=True)
class Circuit:
    """A circuit whose timing is to be predicted.

    Attributes:
        netlist: its cells.
        placement: their positions; None before placement.
        routed_ps: (m,) delays of the connections after routing, picoseconds; known for circuits
            that predictors are fitted on, None in queries.
    """

    netlist: Netlist
    placement: Placement | None = None
    routed_ps: "Column | None" = None
    kind: Literal["circuit"] = "circuit"
