"""Packing of a netlist of iCE40 primitives into logic cells, as nextpnr-ice40 packs it.

A logic cell has a table of four inputs, a register and a carry. The rules are those of nextpnr 0.4
(D. Shah et al., 2019): a register joins the table that drives nothing else, a carry the table with
the same inputs, and clocks and widely used resets and enables are given to global networks.
"""

from collections.abc import Callable
from typing import Final

from forerun.data.circuits.carry_chains import legalise
from forerun.data.circuits.cells import Cell, Cells, Pin
from forerun.data.circuits.netlist import CLOCK_PORTS

GROUND, SUPPLY = "$PACKER_GND", "$PACKER_VCC"
"""Cells whose outputs are constant."""
GLOBALS: Final = 8
"""Global networks of the chip."""
GLOBALS_OF_A_USE: Final = 4
"""Global networks that can drive resets, and those that can drive enables."""
WIDE: Final = 15
"""A reset or an enable with more users than that is given to a global network."""
TABLE_INPUTS: Final = ("I0", "I1", "I2", "I3")
RESETS: Final = frozenset({"SR"})
ENABLES: Final = frozenset({"CEN", "RCLKE", "WCLKE"})


def pack(cells: Cells) -> None:
    """Pack the primitives of a netlist in place."""
    supply = cells.by_name[SUPPLY].ports["O"]
    _pack_tables(cells)
    _pack_registers(cells)
    _pack_carries(cells)
    _merge_tables_into_carries(cells)
    _promote(cells)
    legalise(cells, supply)


def _pack_tables(cells: Cells) -> None:
    """Each table becomes a logic cell, with the register that it alone drives."""
    for table in cells:
        if table.type != "SB_LUT4":
            continue
        logic = cells.add(Cell(f"{table.name}_LC", "ICESTORM_LC", ignored=table.ignored))
        for port in TABLE_INPUTS:
            cells.move(table, port, logic, port)
        users = cells.users(table.ports.get("O"))
        register = users[0][0] if len(users) == 1 and users[0][1] == "D" else None
        if register is not None and register.type.startswith("SB_DFF"):
            _pack_register(cells, register, logic)
        else:
            cells.move(table, "O", logic, "O")
        cells.remove(table)


def _pack_registers(cells: Cells) -> None:
    """Each register that is left becomes a logic cell, whose table passes its input on."""
    for register in cells:
        if register.type.startswith("SB_DFF"):
            logic = cells.add(Cell(f"{register.name}_DFFLC", "ICESTORM_LC"))
            cells.move(register, "D", logic, "I0")
            _pack_register(cells, register, logic)


def _pack_register(cells: Cells, register: Cell, logic: Cell) -> None:
    names = {"C": "CLK", "E": "CEN", "R": "SR", "S": "SR", "Q": "O"}
    for port, name in names.items():
        cells.move(register, port, logic, name)
    cells.remove(register)
    logic.has_register, logic.falls = True, register.falls


def _pack_carries(cells: Cells) -> None:
    """Each carry joins a logic cell with its two inputs, or becomes one."""
    for carry in cells:
        if carry.type != "SB_CARRY":
            continue
        first, second, before = (carry.ports.get(port) for port in ("I0", "I1", "CI"))
        logic = _partner(cells, first, second, before)
        cells.leave(carry, "I0")
        cells.leave(carry, "I1")
        if logic is None:
            logic = cells.add(Cell(f"{carry.name}$CARRY", "ICESTORM_LC"))
            for port, net in (("I1", first), ("I2", second)):
                if net is not None:
                    cells.join(logic, port, net)
        logic.has_carry = True
        if _is_constant(cells, before):
            cells.leave(carry, "CI")
        cells.move(carry, "CI", logic, "CIN")
        cells.move(carry, "CO", logic, "COUT")
        cells.remove(carry)


def _partner(
    cells: Cells, first: int | None, second: int | None, before: int | None
) -> Cell | None:
    """The logic cell whose table has both inputs of a carry, and the carry before as its last."""

    def fits(cell: Cell) -> bool:
        own = cell.ports.get("I1"), cell.ports.get("I2")
        return cell.is_logic and not cell.has_carry and own == (first, second)

    if not _is_constant(cells, before):
        last = cells.user(before, "I3")
        connected = first is not None or second is not None
        return last if last is not None and connected and fits(last) else None
    users = (*cells.users(first), *cells.users(second))
    found = {cell for cell, port in users if port in {"I1", "I2"} and fits(cell)}
    return found.pop() if len(found) == 1 else None


def _is_constant(cells: Cells, net: int | None) -> bool:
    driver = cells.driver(net)
    return driver is not None and driver[0].name in {GROUND, SUPPLY}


def _merge_tables_into_carries(cells: Cells) -> None:
    """A table of two inputs that drives a carry joins it where that cell's own table is free."""
    for carry in cells:
        if not carry.is_logic or not carry.has_carry or "O" in carry.ports:
            continue
        for port in ("I1", "I2"):
            driver = cells.driver(carry.ports.get(port))
            if driver is not None and _may_join(*driver):
                table = driver[0]
                cells.move(table, "I2", carry, "I0")
                cells.move(table, "I3", carry, "I3")
                cells.move(table, "O", carry, "O")
                cells.remove(table)
                carry.ignored = frozenset({"I1", "I2"})
                break


def _may_join(table: Cell, port: str) -> bool:
    """Whether a cell is a table of at most two inputs and nothing else."""
    used = table.has_carry or table.has_register or "I0" in table.ports or "I1" in table.ports
    return port == "O" and table.is_logic and not used


def _promote(cells: Cells) -> None:
    """Give clocks, and resets and enables with many users, to global networks."""
    counts = {
        "clock": _counts(cells, lambda pin: pin[1] in CLOCK_PORTS),
        "reset": _counts(cells, lambda pin: pin[1] in RESETS),
        "enable": _counts(cells, lambda pin: pin[1] in ENABLES),
    }
    left = {"reset": GLOBALS_OF_A_USE, "enable": GLOBALS_OF_A_USE}
    own = [cell for cell in cells if cell.type == "SB_GB"]
    for buffer in own:
        driven = {port for _, port in cells.users(buffer.ports.get("GLOBAL_BUFFER_OUTPUT"))}
        left["reset"] -= bool(driven & RESETS)
        left["enable"] -= bool(driven & ENABLES) and not driven & RESETS
    for _ in range(GLOBALS - len(own)):
        widest = {use: max(of.items(), key=lambda one: one[1], default=(0, 0))
                  for use, of in counts.items()}  # fmt: skip
        clocks = widest["clock"][1]
        wide = [
            use for use in ("reset", "enable")
            if widest[use][1] > max(clocks, WIDE) and left[use] > 0
        ]  # fmt: skip
        if not wide and not clocks:
            return
        use = wide[0] if wide else "clock"
        net = widest[use][0]
        _give_global(cells, net, use)
        for of in counts.values():
            of.pop(net, None)
        if wide:
            left[use] -= 1


def _counts(cells: Cells, has_use: Callable[[Pin], bool]) -> dict[int, int]:
    """Net that is not global -> number of its users of a kind."""
    return {
        net: sum(map(has_use, cells.users(net)))
        for net, (cell, _) in cells.nets()
        if cell.type != "SB_GB"
    }


def _give_global(cells: Cells, net: int, use: str) -> None:
    ports = {"clock": CLOCK_PORTS, "reset": CLOCK_PORTS | RESETS, "enable": CLOCK_PORTS | ENABLES}[
        use
    ]
    driver = cells.drivers[net]
    outputs = frozenset({"GLOBAL_BUFFER_OUTPUT"})
    buffer = cells.add(Cell(f"$gbuf_{driver[0].name}.{driver[1]}", "SB_GB", outputs))
    spread = cells.new_net()
    for cell, port in cells.users(net):
        if port in ports:
            cells.leave(cell, port)
            cells.join(cell, port, spread)
    cells.join(buffer, "USER_SIGNAL_TO_GLOBAL_BUFFER", net)
    cells.join(buffer, "GLOBAL_BUFFER_OUTPUT", spread)
