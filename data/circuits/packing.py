"""Pack a netlist of iCE40 primitives into logic cells, as nextpnr-ice40 does.

A logic cell has a look-up table of four inputs, a register and a carry. The rules are those of
nextpnr 0.4 (D. Shah et al., 2019): a register joins the table that drives only this register, a
carry joins the table with the same inputs, and clocks and widely used resets and enables get global
networks. A carry can only reach the next logic cell of its column. If a chain begins with a signal,
or if its carry is used elsewhere, additional logic cells pass the carry in and out.
"""

from collections.abc import Callable, Sequence
from typing import Final

from forerun.data.circuits.cells import Cell, Cells, Pin
from forerun.data.circuits.netlist import CLOCK_PORTS

ROWS: Final = 34
"""Rows of tiles on the HX8K."""
TILE: Final = 8
"""Logic cells per tile."""
LONGEST: Final = (ROWS - 2) * TILE - 2
"""Most logic cells of a chain in one column."""
INPUTS_OF_A_TILE: Final = 32
_INPUTS: Final = ("I0", "I1", "I2", "I3")
_SHARED: Final = ("CEN", "CLK", "SR")
"""Ports that all registers of a tile share."""


def legalise(cells: Cells, supply: int) -> None:
    """Split the carry chains of packed cells, in place.

    Args:
        cells: the packed cells.
        supply: net that is always 1.
    """
    chains = _chains(cells)
    chained = {cell for chain in chains for cell in chain}
    chains += [[cell] for cell in cells if cell.has_carry and cell not in chained]
    for chain in chains:
        _split(cells, chain, supply)


def _chains(cells: Cells) -> list[list[Cell]]:
    """Chains of at least two logic cells, each in order."""
    found: list[list[Cell]] = []
    chained: set[Cell] = set()
    for cell in cells:
        if cell in chained or not cell.is_logic:
            continue
        start, before, passed = cell, _before(cells, cell), {cell}
        while before is not None and before not in passed:
            passed.add(before)
            start, before = before, _before(cells, before)
        chain: list[Cell] = []
        at: Cell | None = start
        while at is not None and at not in chained:
            chain.append(at)
            chained.add(at)
            at = _after(cells, at)
        if len(chain) > 1:
            found.append(chain)
        else:
            chained.difference_update(chain)
    return found


def _before(cells: Cells, cell: Cell) -> Cell | None:
    """The cell whose carry a cell receives; a cell without a carry may read it as `I3`."""
    driver = cells.driver(cell.ports.get("CIN" if cell.has_carry else "I3"))
    return driver[0] if driver is not None and driver[1] == "COUT" else None


def _after(cells: Cells, cell: Cell) -> Cell | None:
    carry = cell.ports.get("COUT")
    last = cells.user(carry, "I3")
    return cells.user(carry, "CIN") or (None if last is None or last.has_carry else last)


def _split(cells: Cells, chain: Sequence[Cell], supply: int) -> None:
    """Insert the logic cells that pass carries into and out of a chain."""
    tile: list[Cell] = []
    length, begins, at = 0, True, 0
    while at < len(chain):
        cell = chain[at]
        if len(tile) >= TILE:
            tile = []
        if begins:
            tile, length, begins = [], 0, False
            if "CIN" in cell.ports:
                tile.append(_pass_in(cells, cell))
                length += 1
        tile.append(cell)
        length += 1
        if not _share_a_tile(cells, tile) or length > LONGEST:
            _pass_out(cells, chain[at - 1], None, supply)
            begins = True
            continue
        following = chain[at + 1] if at + 1 < len(chain) else None
        if _is_used_elsewhere(cells, cell, following):
            if following is not None:
                begins = not _share_a_tile(cells, [*tile, following]) or length > LONGEST
            tile.append(_pass_out(cells, cell, None if begins else following, supply))
            length += 1
        at += 1


def _is_used_elsewhere(cells: Cells, cell: Cell, following: Cell | None) -> bool:
    """Whether the carry of a cell drives more than the next cell of its chain."""
    carry = cell.ports.get("COUT")
    users = cells.users(carry)
    if carry is None or (len(users) < 2 and following is not None):
        return False
    table, chained = cells.user(carry, "I3"), cells.user(carry, "CIN")
    ends_in_table = len(users) == 1 and table is not None
    return len(users) > 2 or table is not chained or (following is None and not ends_in_table)


def _share_a_tile(cells: Cells, tile: Sequence[Cell]) -> bool:
    """Whether the logic cells fit a tile: limited inputs, and one clock, enable and reset."""
    registers = [cell for cell in tile if cell.has_register]
    shared = {tuple(cell.ports.get(port) for port in _SHARED) for cell in registers}
    if len(shared) > 1:
        return False
    local = sum(1 for net in next(iter(shared), ()) if net is not None and not _global(cells, net))
    return local + sum(port in cell.ports for cell in tile for port in _INPUTS) <= INPUTS_OF_A_TILE


def _global(cells: Cells, net: int) -> bool:
    driver = cells.driver(net)
    return driver is not None and driver[0].type == "SB_GB"


def _pass_in(cells: Cells, cell: Cell) -> Cell:
    """A logic cell that turns the signal at a cell's carry input into a carry."""
    new = cells.add(Cell(f"{cell.name}$PASS_IN", "ICESTORM_LC", has_carry=True))
    cells.move(cell, "CIN", new, "I1")
    carry = cells.new_net()
    cells.join(new, "COUT", carry)
    cells.join(cell, "CIN", carry)
    return new


def _pass_out(cells: Cells, cell: Cell, following: Cell | None, supply: int) -> Cell:
    """A logic cell that turns the carry of a cell into a signal, and passes the carry on."""
    others = frozenset({"I0", "I1", "I2"})
    new = Cell(f"{cell.name}$PASS_OUT", "ICESTORM_LC", has_carry=True, ignored=others)
    cells.add(new)
    cells.move(cell, "COUT", new, "O")
    carry = cells.new_net()
    cells.join(cell, "COUT", carry)
    cells.join(new, "I3", carry)
    if following is not None:
        onward = cells.new_net()
        port = "CIN" if "CIN" in following.ports else "I3"
        cells.leave(following, port)
        cells.join(new, "I1", supply)
        cells.join(new, "COUT", onward)
        cells.join(following, port, onward)
    return new


GROUND, SUPPLY = "$PACKER_GND", "$PACKER_VCC"
"""Names of cells with constant outputs."""
GLOBALS: Final = 8
"""Number of global networks of the chip."""
GLOBALS_OF_A_USE: Final = 4
"""Number of global networks that can drive resets, and number of those that can drive enables."""
WIDE: Final = 15
"""A reset or an enable with more users than this gets a global network."""
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
    """Turn each table into a logic cell, with the register that it alone drives."""
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
    """Turn each remaining register into a logic cell, whose table passes its input through."""
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
    """Let each carry join a logic cell with its two inputs, or become a new one."""
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
    """The logic cell whose table has both inputs of a carry, and its carry-in as the last input."""

    def fits(cell: Cell) -> bool:
        inputs = cell.ports.get("I1"), cell.ports.get("I2")
        return cell.is_logic and not cell.has_carry and inputs == (first, second)

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
    """Merge a two-input table that drives a carry into that cell, if the cell's table is unused."""
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
    """Whether a cell only has a table of at most two inputs."""
    used = table.has_carry or table.has_register or "I0" in table.ports or "I1" in table.ports
    return port == "O" and table.is_logic and not used


def _promote(cells: Cells) -> None:
    """Move clocks, and resets and enables with many users, to global networks."""
    counts = {
        "clock": _counts(cells, lambda pin: pin[1] in CLOCK_PORTS),
        "reset": _counts(cells, lambda pin: pin[1] in RESETS),
        "enable": _counts(cells, lambda pin: pin[1] in ENABLES),
    }
    left = {"reset": GLOBALS_OF_A_USE, "enable": GLOBALS_OF_A_USE}
    buffers = [cell for cell in cells if cell.type == "SB_GB"]
    for buffer in buffers:
        driven = {port for _, port in cells.users(buffer.ports.get("GLOBAL_BUFFER_OUTPUT"))}
        left["reset"] -= bool(driven & RESETS)
        left["enable"] -= bool(driven & ENABLES) and not driven & RESETS
    for _ in range(GLOBALS - len(buffers)):
        widest = {use: max(nets.items(), key=lambda item: item[1], default=(0, 0))
                  for use, nets in counts.items()}  # fmt: skip
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
        for nets in counts.values():
            nets.pop(net, None)
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
