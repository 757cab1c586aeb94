"""Shift registers around a module with more ports than pins."""

import pytest

from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.tools import WRAPPER, Design, Plan, wrapper
from tests.circuit_tools import needs_circuit_tools

NETLIST = {
    "modules": {
        "other": {"attributes": {}, "ports": {}},
        "wide": {
            "attributes": {"top": "00000000000000000000000000000001"},
            "ports": {
                "clk_i": {"direction": "input", "bits": [2]},
                "left": {"direction": "input", "bits": [3, 4, 5]},
                "right": {"direction": "input", "bits": [6]},
                "sum": {"direction": "output", "bits": [7, 8, 9, 10]},
                "carry": {"direction": "output", "bits": [11]},
            },
        },
    }
}
WIDE = """
module wide #(parameter W = 8) (input clk, input [W-1:0] a, b, output reg [W-1:0] s);
  always @(posedge clk) s <= a + b;
endmodule
"""


def test_every_port_has_bits_of_its_own():
    text = wrapper("wide", {"W": 3}, NETLIST)
    assert text.startswith(f"module {WRAPPER}(input clk, input in, input load, output out);")
    assert "reg [3:0] given;" in text
    assert "reg [4:0] taken;" in text
    ports = ".clk_i(clk), .left(given[2:0]), .right(given[3:3]), .sum(own[3:0]), .carry(own[4:4])"
    assert f"wide #(.W(3)) wrapped ({ports});" in text


def test_a_module_without_a_clock_is_refused():
    ports = {"a": {"direction": "input", "bits": [1]}}
    netlist = {"modules": {"wide": {"attributes": {"top": "1"}, "ports": ports}}}
    with pytest.raises(ValueError, match="wide has no input clk or clock"):
        wrapper("wide", {}, netlist)


def test_a_port_of_both_directions_is_refused():
    ports = {"clk": {"direction": "input", "bits": [1]}, "sda": {"direction": "inout", "bits": [2]}}
    netlist = {"modules": {"wide": {"attributes": {"top": "1"}, "ports": ports}}}
    with pytest.raises(ValueError, match="wide has ports of both directions: sda"):
        wrapper("wide", {}, netlist)


@needs_circuit_tools
def test_a_module_of_more_ports_than_pins_is_placed(tmp_path):
    source = tmp_path / "wide.v"
    source.write_text(WIDE)
    design = Design("wide-w80", "wide", "wide", {"W": 80}, (source,), is_wrapped=True)
    netlist, words = tools.synthesised(design, tmp_path)
    placed = tools.placed(netlist, 1, tmp_path)
    assert words["$add"] == 1
    (module,) = placed.netlist["modules"].values()
    cells = module["cells"].values()
    assert sum(cell["type"] == "SB_IO" for cell in cells) == 4
    (clock,) = placed.report["fmax"].values()
    assert clock["achieved"] > 10.0


def test_designs_of_a_plan_are_named_and_wrapped(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "seeds: [1]\nmodules:\n"
        "  - {module: top, name: small, family: cpu, sources: [a.v], wrapped: true}\n"
        "  - {module: top, name: large, family: cpu, sources: [b.v]}\n"
    )
    small, large = Plan.read(plan).designs
    assert [design.name for design in (small, large)] == ["small", "large"]
    assert {design.family for design in (small, large)} == {"cpu"}
    assert [design.is_wrapped for design in (small, large)] == [True, False]
