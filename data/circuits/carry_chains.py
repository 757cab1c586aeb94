"""Chains of carries that the chip can wire.

A carry reaches the next logic cell of its column only. A chain that begins with a signal, or whose
carry is used elsewhere, needs logic cells that pass it in and out; the rules are nextpnr's.
"""

from collections.abc import Sequence
from typing import Final

from forerun.data.circuits.cells import Cell, Cells

ROWS: Final = 34
"""Rows of tiles of the HX8K."""
TILE: Final = 8
"""Logic cells of a tile."""
LONGEST: Final = (ROWS - 2) * TILE - 2
"""Logic cells of a chain that one column holds."""
INPUTS_OF_A_TILE: Final = 32
_INPUTS: Final = ("I0", "I1", "I2", "I3")
_SHARED: Final = ("CEN", "CLK", "SR")
"""Ports that all registers of a tile have in common."""


def legalise(cells: Cells, supply: int) -> None:
    """Split the chains of carries of packed cells, in place.

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
    """Chains of at least two logic cells, each in its order."""
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
    """The cell whose carry a cell takes; one without a carry of its own may read it as `I3`."""
    driver = cells.driver(cell.ports.get("CIN" if cell.has_carry else "I3"))
    return driver[0] if driver is not None and driver[1] == "COUT" else None


def _after(cells: Cells, cell: Cell) -> Cell | None:
    carry = cell.ports.get("COUT")
    last = cells.user(carry, "I3")
    return cells.user(carry, "CIN") or (None if last is None or last.has_carry else last)


def _split(cells: Cells, chain: Sequence[Cell], supply: int) -> None:
    """Insert the logic cells that pass carries in and out of a chain."""
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
    """Whether the carry of a cell drives more than the next one of its chain."""
    carry = cell.ports.get("COUT")
    users = cells.users(carry)
    if carry is None or (len(users) < 2 and following is not None):
        return False
    table, chained = cells.user(carry, "I3"), cells.user(carry, "CIN")
    ends_in_table = len(users) == 1 and table is not None
    return len(users) > 2 or table is not chained or (following is None and not ends_in_table)


def _share_a_tile(cells: Cells, tile: Sequence[Cell]) -> bool:
    """Whether the logic cells have no more inputs than a tile, and one clock, enable and reset."""
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
    """A logic cell that makes a carry for a cell of the signal at its carry input."""
    new = cells.add(Cell(f"{cell.name}$PASS_IN", "ICESTORM_LC", has_carry=True))
    cells.move(cell, "CIN", new, "I1")
    carry = cells.new_net()
    cells.join(new, "COUT", carry)
    cells.join(cell, "CIN", carry)
    return new


def _pass_out(cells: Cells, cell: Cell, following: Cell | None, supply: int) -> Cell:
    """A logic cell that makes a signal of the carry of a cell, and passes it on to the next."""
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
