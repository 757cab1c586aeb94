"""The netlist of packed cells, with the times of an iCE40 HX8K.

Times are those of the slow corner in the chip's data, as nextpnr 0.4 reports them; every cell of
`circuit_fpga` has them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.circuits.cells import KIND_OF_TYPE, Cell, Cells
from forerun.data.circuits.netlist import CELL_KINDS, Connections, Netlist
from forerun.data.columns import Positions

CLOCK_TO_OUTPUT_PS: Final = 540
TABLE_PS: Final = {"I0": 448, "I1": 399, "I2": 378, "I3": 315}
"""Input of a logic cell -> delay to its output."""
SETUP_PS: Final = {"I0": 468, "I1": 419, "I2": 398, "I3": 335, "CEN": 100, "SR": 100}
"""Input of a logic cell with a register -> setup time before its clock."""
CARRY_PS: Final = {"CIN": 126, "I1": 259, "I2": 231}
"""Input of a logic cell -> delay to its carry."""
MEMORY_PS: Final = 2146
"""Delay from the clock of a memory to its output."""
MEMORY_SETUP_PS: Final = 100
BUFFER_PS: Final = 617
"""Delay of the buffer of a global network."""

Path = tuple[str, str, int, bool]
"""Two ports of a cell, the time in picoseconds, and whether it is a setup time."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A netlist and the names of its cells.

    Attributes:
        netlist: the netlist.
        names: (n,) name of each cell.
        clocks: (n,) clock net of each cell with a register; 0 without one.
    """

    netlist: Netlist
    names: tuple[str, ...]
    clocks: Positions


def assembled(cells: Cells) -> Assembly:
    """The netlist of packed cells, in the order of their names."""
    own = sorted(cells, key=lambda cell: cell.name)
    number = {cell: position for position, cell in enumerate(own)}
    arcs = sorted(
        (number[driver], out, number[cell], port)
        for net, (driver, out) in cells.nets()
        for cell, port in cells.users(net)
        if port != "PACKAGE_PIN"
    )
    paths = [(number[cell], *path) for cell in own for path in _paths(cell)]
    kinds = [CELL_KINDS.index(KIND_OF_TYPE.get(cell.type, "other")) for cell in own]
    clocks = [cell.ports.get("CLK", 0) if cell.has_register else 0 for cell in own]
    at = np.array([path[0] for path in paths], dtype=np.intp)
    netlist = Netlist(
        np.array(kinds, dtype=np.intp),
        Connections(
            np.array([arc[0] for arc in arcs], dtype=np.intp), [arc[1] for arc in arcs],
            np.array([arc[2] for arc in arcs], dtype=np.intp), [arc[3] for arc in arcs],
        ),
        Connections(at, [path[1] for path in paths], at, [path[2] for path in paths]),
        np.array([path[3] for path in paths], dtype=np.float64),
        np.array([path[4] for path in paths], dtype=np.bool_),
    )  # fmt: skip
    return Assembly(netlist, tuple(cell.name for cell in own), np.array(clocks, dtype=np.intp))


def _paths(cell: Cell) -> Iterator[Path]:
    """Delays through a cell and setup times, of the ports that are connected."""
    ports = cell.ports
    if cell.is_logic:
        if "O" in ports and cell.has_register:
            yield "CLK", "O", CLOCK_TO_OUTPUT_PS, False
        elif "O" in ports:
            used = ports.keys() - cell.ignored
            yield from ((port, "O", ps, False) for port, ps in TABLE_PS.items() if port in used)
        if cell.has_register:
            yield from ((port, "CLK", ps, True) for port, ps in SETUP_PS.items() if port in ports)
        if "COUT" in ports:
            yield from ((port, "COUT", ps, False) for port, ps in CARRY_PS.items() if port in ports)
    elif cell.type == "ICESTORM_RAM":
        for port in ports:
            if port.startswith("RDATA"):
                yield "RCLK", port, MEMORY_PS, False
            elif "CLK" not in port or port.endswith("CLKE"):
                clock = "RCLK" if port.startswith("R") else "WCLK"
                yield port, clock, MEMORY_SETUP_PS, True
    elif cell.type == "SB_GB":
        yield "USER_SIGNAL_TO_GLOBAL_BUFFER", "GLOBAL_BUFFER_OUTPUT", BUFFER_PS, False
