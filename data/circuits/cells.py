"""Cells of an FPGA and the nets between their ports, during packing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from forerun.data.circuits.netlist import CellKind

Pin = tuple["Cell", str]
"""A cell and the name of one of its ports."""
LOGIC_OUTPUTS: Final = frozenset({"O", "COUT"})


@dataclass(eq=False, slots=True)
class Cell:
    """A cell and the connections of its ports.

    Attributes:
        name: unique name.
        type: type in the netlist, such as `SB_LUT4`; `ICESTORM_LC` for a packed logic cell.
        outputs: names of the ports that drive nets.
        ports: name of a connected port -> number of its net.
        has_register, has_carry: whether a packed logic cell uses its register and its carry.
        ignored: inputs that the look-up table does not depend on.
        falls: whether its register is triggered by the falling edge of its clock.
    """

    name: str
    type: str
    outputs: frozenset[str] = LOGIC_OUTPUTS
    ports: dict[str, int] = field(default_factory=dict)
    has_register: bool = False
    has_carry: bool = False
    ignored: frozenset[str] = frozenset()
    falls: bool = False

    @property
    def is_logic(self) -> bool:
        """Whether it is a packed logic cell."""
        return self.type == "ICESTORM_LC"


KIND_OF_TYPE: Final[dict[str, CellKind]] = {
    "ICESTORM_LC": "logic",
    "SB_IO": "port",
    "SB_GB": "global",
    "ICESTORM_RAM": "memory",
}
"""Type of a packed cell -> its kind; all other types are `other`."""


class Cells:
    """Cells by name, and the driver and users of each net."""

    def __init__(self) -> None:
        self.by_name: dict[str, Cell] = {}
        self.drivers: dict[int, Pin] = {}
        self._users: dict[int, dict[Pin, None]] = {}
        self._nets = 0

    def __iter__(self) -> Iterator[Cell]:
        """The current cells, so that cells may be added or removed during iteration."""
        return iter(tuple(self.by_name.values()))

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, cell: Cell) -> Cell:
        """Add a cell, whose ports may be connected now or later."""
        given, cell.ports = cell.ports, {}
        self.by_name[cell.name] = cell
        for port, net in given.items():
            self.join(cell, port, net)
        return cell

    def remove(self, cell: Cell) -> None:
        """Remove a cell and disconnect its ports."""
        for port in tuple(cell.ports):
            self.leave(cell, port)
        del self.by_name[cell.name]

    def new_net(self) -> int:
        """Number of a new net without connections."""
        self._nets += 1
        return -self._nets

    def join(self, cell: Cell, port: str, net: int) -> None:
        """Connect an unconnected port."""
        cell.ports[port] = net
        if port in cell.outputs:
            self.drivers[net] = cell, port
        else:
            self._users.setdefault(net, {})[cell, port] = None

    def leave(self, cell: Cell, port: str) -> int | None:
        """Disconnect a port; returns the net it was connected to, or None."""
        net = cell.ports.pop(port, None)
        if net is None:
            return None
        if port not in cell.outputs:
            del self._users[net][cell, port]
        elif self.drivers.get(net) == (cell, port):
            del self.drivers[net]
        return net

    def move(self, cell: Cell, port: str, to: Cell, new_port: str) -> None:
        """Move the connection of a port, if any, to a port of another cell."""
        net = self.leave(cell, port)
        if net is not None:
            self.join(to, new_port, net)

    def users(self, net: int | None) -> tuple[Pin, ...]:
        """Ports that a net drives; empty for None."""
        return () if net is None else tuple(self._users.get(net, ()))

    def driver(self, net: int | None) -> Pin | None:
        """The port that drives a net; None if there is none."""
        return None if net is None else self.drivers.get(net)

    def user(self, net: int | None, port: str) -> Cell | None:
        """The first logic cell for which a net drives that port; None if there is none."""
        found = (cell for cell, pin in self.users(net) if pin == port and cell.is_logic)
        return next(found, None)

    def nets(self) -> Iterable[tuple[int, Pin]]:
        """Each driven net and its driver."""
        return tuple(self.drivers.items())
