"""Build the netlist of packed cells, with the timing of an iCE40 HX8K.

Times are those of the slow corner in the chip's data, as reported by nextpnr 0.4; they apply to
every cell of `circuit_fpga`.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.circuits.cells import KIND_OF_TYPE, Cell, Cells
from forerun.data.circuits.netlist import CELL_KINDS, CLOCK_PORTS, Connections, Netlist

CLOCK_TO_OUTPUT_PS: Final = 540
TABLE_PS: Final = {"I0": 448, "I1": 399, "I2": 378, "I3": 315}
"""Input of a logic cell -> delay to its output."""
SETUP_PS: Final = {"I0": 468, "I1": 419, "I2": 398, "I3": 335, "CEN": 100, "SR": 100}
"""Input of a logic cell with a register -> setup time before its clock."""
CARRY_PS: Final = {"CIN": 126, "I1": 259, "I2": 231}
"""Input of a logic cell -> delay to its carry output."""
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
        clocks: (k,) name of the clock of each pair of ports; empty for delays from inputs to
            outputs, which have none.
    """

    netlist: Netlist
    names: tuple[str, ...]
    clocks: Sequence[str]


def assembled(cells: Cells) -> Assembly:
    """The netlist of packed cells, sorted by name."""
    ordered = sorted(cells, key=lambda cell: cell.name)
    number = {cell: position for position, cell in enumerate(ordered)}
    arcs = sorted(
        (number[driver], out, number[cell], port)
        for net, (driver, out) in cells.nets()
        for cell, port in cells.users(net)
        if port != "PACKAGE_PIN"
    )
    paths = [(number[cell], *path) for cell in ordered for path in _paths(cell)]
    kinds = [CELL_KINDS.index(KIND_OF_TYPE.get(cell.type, "other")) for cell in ordered]
    clocks = [_clock(cells, ordered[path[0]], {path[1], path[2]}) for path in paths]
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
    return Assembly(netlist, tuple(cell.name for cell in ordered), clocks)


def _clock(cells: Cells, cell: Cell, ports: Set[str]) -> str:
    """Name of the clock of a pair of ports: the pin or port that drives it."""
    port = next(iter(ports & CLOCK_PORTS), None)
    if port is None:
        return ""
    driver = cells.driver(cell.ports.get(port))
    if driver is not None and driver[0].type == "SB_GB":
        driver = cells.driver(driver[0].ports.get("USER_SIGNAL_TO_GLOBAL_BUFFER")) or driver
    if driver is None:
        name = "unconnected"
    elif driver[0].type == "SB_IO":
        name = driver[0].name.removesuffix("$sb_io")
    else:
        name = ".".join((driver[0].name, driver[1]))
    return f"{name} (falling edge)" if cell.falls else name


def _paths(cell: Cell) -> Iterator[Path]:
    """Delays through a cell and setup times, for connected ports."""
    if cell.is_logic:
        yield from _logic_paths(cell)
    elif cell.type == "ICESTORM_RAM":
        for port in cell.ports:
            if port.startswith("RDATA"):
                yield "RCLK", port, MEMORY_PS, False
            elif port not in CLOCK_PORTS:
                yield port, "RCLK" if port.startswith("R") else "WCLK", MEMORY_SETUP_PS, True
    elif cell.type == "SB_GB":
        yield "USER_SIGNAL_TO_GLOBAL_BUFFER", "GLOBAL_BUFFER_OUTPUT", BUFFER_PS, False


def _logic_paths(cell: Cell) -> Iterator[Path]:
    ports = cell.ports
    used = ports.keys() - cell.ignored
    if "O" in ports and cell.has_register:
        yield "CLK", "O", CLOCK_TO_OUTPUT_PS, False
    elif "O" in ports:
        yield from ((port, "O", ps, False) for port, ps in TABLE_PS.items() if port in used)
    if cell.has_register:
        yield from ((port, "CLK", ps, True) for port, ps in SETUP_PS.items() if port in ports)
    if "COUT" in ports:
        yield from ((port, "COUT", ps, False) for port, ps in CARRY_PS.items() if port in ports)
