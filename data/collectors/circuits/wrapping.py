"""Modules with more ports than a package has pins, with shift registers around them."""

from collections.abc import Mapping
from typing import Any, Final

WRAPPER: Final = "in_shift_registers"
"""Name of the module that holds another one."""


def wrapper(module: str, parameters: Mapping[str, int], netlist: Mapping[str, Any]) -> str:
    """Verilog of a module that feeds another one from a shift register and reads it by another.

    Its ports are the clock, one bit in, one bit out, and `load`, which takes all outputs at a time.

    Args:
        module: name of the module that is wrapped.
        parameters: values of its parameters.
        netlist: what yosys writes of it as JSON; the first input of one bit whose name begins with
            `clk` or `clock` is its clock.

    Raises:
        ValueError: it has no such input, or a port of both directions.
    """
    ports = _ports(netlist)
    both = [name for name, (way, _) in ports.items() if way not in ("input", "output")]
    if both:
        raise ValueError(f"{module} has ports of both directions: {', '.join(both)}")
    inputs = {name: bits for name, (way, bits) in ports.items() if way == "input"}
    outputs = {name: bits for name, (way, bits) in ports.items() if way == "output"}
    clock = next(
        (name for name, bits in inputs.items() if bits == 1 and name.startswith(("clk", "clock"))),
        None,
    )
    if clock is None:
        raise ValueError(f"{module} has no input clk or clock")
    given = {name: bits for name, bits in inputs.items() if name != clock}
    into, out = max(sum(given.values()), 1), max(sum(outputs.values()), 1)
    values = ", ".join(f".{name}({value})" for name, value in parameters.items())
    wires = [f".{clock}(clk)", *_connected(given, "given"), *_connected(outputs, "own")]
    return f"""module {WRAPPER}(input clk, input in, input load, output out);
  reg [{into - 1}:0] given;
  reg [{out - 1}:0] taken;
  wire [{out - 1}:0] own;
  assign out = taken[{out - 1}];
  always @(posedge clk) begin
    given <= (given << 1) | in;
    taken <= load ? own : taken << 1;
  end
  {module} {f"#({values}) " if values else ""}wrapped ({", ".join(wires)});
endmodule
"""


def _ports(netlist: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Name of a port of the top module -> its direction and its bits."""
    tops = [one for one in netlist["modules"].values() if int(one["attributes"].get("top", "0"), 2)]
    return {
        name: (str(port["direction"]), len(port["bits"])) for name, port in tops[0]["ports"].items()
    }


def _connected(ports: Mapping[str, int], register: str) -> list[str]:
    """Connections of ports to successive bits of a register."""
    found, first = [], 0
    for name, bits in ports.items():
        found.append(f".{name}({register}[{first + bits - 1}:{first}])")
        first += bits
    return found
