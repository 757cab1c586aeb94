"""Read netlists of iCE40 designs from yosys JSON, mapped to primitives or packed by nextpnr."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from forerun.data.circuits.cells import LOGIC_OUTPUTS, Cell, Cells
from forerun.data.circuits.packing import GROUND, SUPPLY, TABLE_INPUTS, pack
from forerun.data.described import Described, first_fault
from forerun.data.errors import InputError

Bit = Annotated[int, Field(ge=0, le=2**31, strict=True)] | Literal["0", "1", "x", "z"]
"""Number of a net, or a constant."""
Value = str | Annotated[int, Field(ge=-(2**63), lt=2**64)]
MOST_MODULES: Final = 1000
MOST_CELLS: Final = 40_000
"""Most cells of a module before packing; the HX8K has 7,680 logic cells."""
SHARED: Final = ("SB_IO", "SB_GB")
PRIMITIVES: Final = ("SB_LUT4", "SB_CARRY", "SB_DFF", "SB_RAM40_4K", "SB_PLL40", *SHARED)
"""Prefixes of supported cell types."""
PACKED: Final = ("ICESTORM_LC", "ICESTORM_RAM", "ICESTORM_PLL", *SHARED)
"""Prefixes of supported cell types in a netlist packed by nextpnr."""
OUTPUTS: Final = {
    "SB_LUT4": {"O"},
    "SB_CARRY": {"CO"},
    "SB_DFF": {"Q"},
    "SB_RAM40_4K": {f"RDATA_{bit}" for bit in range(16)},
    "ICESTORM_RAM": {f"RDATA_{bit}" for bit in range(16)},
    "ICESTORM_LC": LOGIC_OUTPUTS,
    "SB_IO": {"D_IN_0", "D_IN_1"},
    "SB_GB": {"GLOBAL_BUFFER_OUTPUT"},
    "SB_PLL40": {
        *(f"PLLOUT{kind}{which}" for kind in ("CORE", "GLOBAL") for which in ("", "A", "B")),
        *("LOCK", "SDO"),
    },
    "ICESTORM_PLL": {
        *(f"PLLOUT_{which}{kind}" for kind in ("", "_GLOBAL") for which in ("A", "B")),
        *("LOCK", "SDO"),
    },
}
"""Prefix of a cell type -> its ports that drive nets."""
_HOW: Final = "synth_ice40 -top MODULE -json FILE"
_CLOCKED: Final = frozenset({"RCLK", "RCLKN", "WCLK", "WCLKN", "RCLKE", "WCLKE"})


class BadNetlist(InputError):
    """A netlist cannot be read, or is of another kind."""


class CellIn(Described):
    """A cell of a module."""

    type: str
    """primitive of iCE40, such as SB_LUT4, or a cell of nextpnr"""
    parameters: dict[str, Value] = Field(default={})
    """such as LUT_INIT, 16 binary digits; others are ignored"""
    connections: dict[str, list[Bit]] = Field(default={})
    """port -> net of each of its bits, by number, or a constant"""


class PortIn(Described):
    """A port of a module."""

    direction: Literal["input", "output", "inout"]
    """direction of the port"""
    bits: list[Bit]
    """net of each of its bits, by number, or a constant"""


class ModuleIn(Described):
    """A module; those of libraries have no cells."""

    attributes: dict[str, Value] = Field(default={})
    """`top` marks the module that is not part of another"""
    ports: dict[str, PortIn] = Field(default={})
    """ports by name"""
    cells: dict[str, CellIn] = Field(default={}, max_length=MOST_CELLS)
    """cells by name"""


class NetlistIn(Described):
    """The part that is used of what yosys (`write_json`) and nextpnr (`--write`) write."""

    modules: Annotated[dict[str, ModuleIn], Field(min_length=1, max_length=MOST_MODULES)]
    """modules by name, as `synth_ice40 -json` of yosys or `--pack-only --write` of nextpnr-ice40
    writes them; those without cells are ignored"""


def read_netlist(given: Mapping[str, Any]) -> NetlistIn:
    """The netlist in a JSON document.

    Raises:
        BadNetlist: the document is not a netlist.
    """
    try:
        return NetlistIn.model_validate(given)
    except ValidationError as error:
        raise BadNetlist(f"{first_fault(error)}; write it with yosys: {_HOW}.") from None


def packed_cells(netlist: NetlistIn) -> Cells:
    """The packed cells of a netlist that is mapped to iCE40 or already packed.

    Raises:
        BadNetlist: it has no single top module, or has unsupported cells.
    """
    module = _top(netlist.modules)
    is_packed = any(cell.type.startswith("ICESTORM_") for cell in module.cells.values())
    cells = Cells()
    _check(module, PACKED if is_packed else PRIMITIVES)
    if not is_packed:
        _constants(cells, module)
    for name, cell in module.cells.items():
        cells.add(_cell(name, cell, cells))
    if not is_packed:
        _ports(cells, module)
        pack(cells)
    return cells


def _top(modules: Mapping[str, ModuleIn]) -> ModuleIn:
    """The module that is marked as the top, or the only one with cells."""
    marked = [
        module for module in modules.values() if str(module.attributes.get("top", 0)).strip("0")
    ]
    with_cells = [module for module in modules.values() if module.cells]
    found = marked or with_cells
    if len(found) != 1:
        raise BadNetlist(
            f"modules: {len(found)} of {len(modules)} may be the top one; write the netlist with "
            f"{_HOW}."
        )
    return found[0]


def _check(module: ModuleIn, known: tuple[str, ...]) -> None:
    """Reject a module with unsupported cells."""
    if not module.cells:
        raise BadNetlist("modules: the top module has no cells.")
    for name, cell in module.cells.items():
        if not cell.type.startswith(known):
            raise BadNetlist(
                f"modules.cells.{name}: {cell.type!r} is not one of {', '.join(known)}; map "
                f"the design to iCE40 with {_HOW}."
            )
    for name, port in module.ports.items():
        if port.direction == "inout" and not any(
            cell.type.startswith("SB_IO") for cell in module.cells.values()
        ):
            raise BadNetlist(f"modules.ports.{name}: an inout needs an SB_IO.")


def _constants(cells: Cells, module: ModuleIn) -> None:
    """Add the cells that drive constants: always for 1, and for 0 if it is used.

    Raises:
        BadNetlist: the module has cells of these names.
    """
    of_cells = (bits for cell in module.cells.values() for bits in cell.connections.values())
    of_ports = (port.bits for port in module.ports.values())
    has_zero = any("0" in bits for bits in chain(of_cells, of_ports))
    for name in (GROUND, SUPPLY) if has_zero else (SUPPLY,):
        if name in module.cells:
            raise BadNetlist(f"modules.cells.{name}: the name is taken by a constant.")
        cells.add(Cell(name, "ICESTORM_LC", ports={"O": cells.new_net()}))


def _cell(name: str, given: CellIn, cells: Cells) -> Cell:
    kind = next(bit_name for bit_name in OUTPUTS if given.type.startswith(bit_name))
    ports = {}
    for port, bits in given.connections.items():
        for bit, value in enumerate(bits):
            is_bus = len(bits) > 1 or port.strip("RW") in {"DATA", "ADDR", "MASK"}
            bit_name = f"{port}_{bit}" if is_bus else port.replace("CLKN", "CLK")
            net = _net(value, given.type, port, cells)
            if net is not None:
                ports[bit_name] = net
    packed_type = "ICESTORM_RAM" if kind == "SB_RAM40_4K" else given.type
    table = str(given.parameters.get("LUT_INIT", ""))
    register, carry = _is_set(given, "DFF_ENABLE"), _is_set(given, "CARRY_ENABLE")
    outputs, ignored = frozenset(OUTPUTS[kind]), _ignored(table)
    falls = given.type.startswith("SB_DFFN") or _is_set(given, "NEG_CLK")
    return Cell(name, packed_type, outputs, ports, register, carry, ignored, falls)


def _is_set(given: CellIn, parameter: str) -> bool:
    """Whether a parameter, given in binary digits of any length, is not 0."""
    return str(given.parameters.get(parameter, "0")).strip("0") != ""


def _ignored(table: str) -> frozenset[str]:
    """Inputs that a table of 16 binary digits does not depend on; none if it is not given."""
    if not table or table.strip("01"):
        return frozenset()
    rows = int(table, 2)
    return frozenset(
        port
        for position, port in enumerate(TABLE_INPUTS)
        if all((rows >> row & 1) == (rows >> (row ^ 1 << position) & 1) for row in range(16))
    )


def _net(bit: Bit, kind: str, port: str, cells: Cells) -> int | None:
    """Number of the net of a bit; None for a port that is left open, such as inputs that are 0.

    A packed netlist has its own cells for constants.
    """
    if isinstance(bit, int):
        return bit
    if bit in {"x", "z"}:
        return cells.new_net()
    open_if_zero = (kind in {"SB_LUT4", "SB_CARRY"} and port.startswith("I")) or (
        kind.startswith("SB_RAM") and port not in _CLOCKED
    )
    if bit == "0" and open_if_zero:
        return None
    constant = cells.by_name.get(SUPPLY if bit == "1" else GROUND)
    return None if constant is None else constant.ports["O"]


def _ports(cells: Cells, module: ModuleIn) -> None:
    """Add a cell for each bit of a module port that has none."""
    wired = {cell.ports.get("PACKAGE_PIN") for cell in cells if cell.type.startswith("SB_IO")}
    for name, bit, direction in _bits(module):
        if bit in wired:
            continue
        port = cells.add(Cell(f"{name}$sb_io", "SB_IO", frozenset(OUTPUTS["SB_IO"])))
        if direction == "output":
            net = _net(bit, "SB_IO", "D_OUT_0", cells)
            if net is not None:
                cells.join(port, "D_OUT_0", net)
        elif isinstance(bit, int) and cells.users(bit):
            cells.join(port, "D_IN_0", bit)


def _bits(module: ModuleIn) -> Iterator[tuple[str, Bit, str]]:
    for name, port in module.ports.items():
        for number, bit in enumerate(port.bits):
            yield f"{name}[{number}]" if len(port.bits) > 1 else name, bit, port.direction
