"""Circuits of real tools: delays give nextpnr's own frequency, and a collection resumes.

Plans of circuits name each design once, and the packaged one has families of several designs.

Files of delays are read as nextpnr writes them.

Shift registers around a module with more ports than pins.
"""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.collection import TABLES, Collection, Delays, Made
from forerun.data.collectors.circuits.tools import SOURCES, WRAPPER, Design, Plan, wrapper
from forerun.data.datasets.circuits.circuit_fpga import designs
from forerun.data.errors import BadTable, MissingTool
from forerun.features.circuits.longest_path import TimingGraph, fmax_mhz
from tests.circuit_tools import needs_circuit_tools

NAMES = ("adder-w8-n2", "divider-w4", "fifo-w8-depth256-block1")


def collection(folder, *names, seeds=(1, 2)):
    plan = Plan.read()
    designs = tuple(design for design in plan.designs if design.name in names)
    assert len(designs) == len(names)
    return Collection(Plan(seeds, designs), folder)


def of(frames, design, *names):
    return (frames[name][frames[name]["design"] == design] for name in names)


def graph_of(frames, design):
    (own,) = designs(dict(zip(TABLES, of(frames, design, *TABLES), strict=True)))
    return TimingGraph.of(own.netlist)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    own = collection(tmp_path_factory.mktemp("circuits") / "a folder", *NAMES)
    assert [*own.run()] == [Made(design.name) for design in own.plan.designs]
    return own


@needs_circuit_tools
@pytest.mark.slow
def test_longest_paths_over_the_delays_are_those_of_nextpnr(made):
    """The tool adds times before it rounds them, which leaves a picosecond or two."""
    frames = made.frames()
    for design in NAMES:
        graph = graph_of(frames, design)
        arcs, runs = of(frames, design, "arcs", "runs")
        delays = arcs[["routed_1_ps", "routed_2_ps"]].to_numpy(np.float64)
        found = fmax_mhz(graph.period_ps(delays))
        np.testing.assert_allclose(found, runs["fmax_mhz"], rtol=1e-3)
        estimated = arcs[["estimated_1_ps", "estimated_2_ps"]].to_numpy(np.float64)
        assert (fmax_mhz(graph.period_ps(estimated)) > 0.5 * found).all()


@needs_circuit_tools
@pytest.mark.slow
def test_tables_agree_with_the_report_and_with_each_other(made):
    frames = made.frames()
    assert tuple(frames) == TABLES
    for design in NAMES:
        nodes, arcs, runs = of(frames, design, "nodes", "arcs", "runs")
        kinds = nodes["kind"].value_counts()
        assert kinds["logic"] == runs["logic_cells"].iloc[0]
        assert kinds["port"] == runs["ports"].iloc[0]
        assert kinds.get("memory", 0) == runs["memories"].iloc[0]
        assert set(arcs["source"]) | set(arcs["sink"]) <= set(nodes["node"])
        places = nodes[["x_1", "y_1", "z_1"]].to_numpy()
        assert (places >= 0).all() and places.max() == 33
        assert len(np.unique(places[nodes["kind"] == "logic"], axis=0)) == kinds["logic"]
        assert set(nodes["z_1"][nodes["kind"] == "logic"]) <= set(range(8))
        assert (nodes["x_1"] != nodes["x_2"]).any()
    (fifo,) = of(frames, NAMES[-1], "runs")
    assert fifo["memories"].iloc[0] == 1


@needs_circuit_tools
@pytest.mark.slow
def test_a_collection_resumes_and_names_what_failed(tmp_path):
    source = tmp_path / "not right.v"
    source.write_text("module broken(input clk, output q); assign q = nothing(); endmodule\n")
    own = collection(tmp_path / "out", "adder-w8-n2", seeds=(1,))
    broken = Design("broken", "broken", "broken", {}, (source,))
    own = replace(own, plan=replace(own.plan, designs=(broken, *own.plan.designs)))
    assert [*own.run(budget_minutes=0.0)] == []
    first, second = own.run(jobs=2)
    assert first.problem and first.problem.startswith("broken: yosys: ")
    assert "nothing" in first.problem
    assert second == Made("adder-w8-n2")
    assert own.todo() == [] and [*own.run()] == []
    assert [row["design"] for row in own.failures.rows()] == ["broken"]
    assert own.write_tables()["runs"] == 1
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert set(about["tools"]) == {"yosys", "nextpnr-ice40"}
    assert "unknown" not in about["tools"].values()
    assert not [*(tmp_path / "out" / "designs").glob(".*")]


def test_without_the_tools_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    with pytest.raises(MissingTool, match="apt-get install yosys nextpnr-ice40"):
        Collection.open(tmp_path)


def test_the_packaged_plan_has_hundreds_of_designs_in_families():
    plan = Plan.read()
    families = Counter(design.family for design in plan.designs)
    assert len(plan.designs) >= 400
    assert len(families) >= 25
    assert min(families.values()) >= 4
    assert len(plan.seeds) == 5
    assert {"processor"} <= set(families)


def test_every_module_of_the_plan_is_in_the_package_with_its_parameters():
    text = "\n".join(path.read_text() for path in SOURCES)
    for design in Plan.read().designs:
        head = re.search(rf"module {design.module} #\((.*?)\) \(", text, re.S)
        assert head, design.module
        known = set(re.findall(r"(\w+) = ", head.group(1)))
        assert set(design.parameters) <= known, design.name


def test_a_grid_is_every_combination(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "seeds: [1]\nmodules:\n"
        "  - {module: a, family: f, grids: [{W: [1, 2], N: [3]}, {W: [9]}]}\n"
        "  - {module: own, sources: [own.v]}\n"
    )
    plan = Plan.read(path)
    assert [design.name for design in plan.designs] == ["a-w1-n3", "a-w2-n3", "a-w9", "own"]
    assert plan.designs[0].parameters == {"W": 1, "N": 3}
    assert {design.family for design in plan.designs} == {"f", "own"}
    assert plan.designs[-1].sources == (tmp_path / "own.v",)


@pytest.mark.parametrize(
    "content, why",
    [
        ("seeds: []\nmodules: []", "seeds"),
        ("seeds: [1]\nmodules: [{module: a}, {module: a}]", "a is given twice"),
        ("seeds: [1\n", "expected"),
        ("seeds: [1]\nmodules: [{modul: a}]", "modul"),
        ("seeds: [1]\nmodules: [{module: a; shell}]", "pattern"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(tmp_path, content, why):
    path = tmp_path / "plan.yaml"
    path.write_text(content)
    with pytest.raises(BadTable, match=why) as refused:
        Plan.read(path)
    assert str(path) in str(refused.value)


def test_delays_have_plain_names_and_the_longer_edge():
    found = Delays.read(Path(__file__).with_name("one.sdf"))
    assert found.kinds == {"x[3]_LC": "ICESTORM_LC", "q$sb_io": "SB_IO"}
    assert found.nets == {
        (("x[3]_LC", "O"), ("q$sb_io", "D_OUT_0")): 2208,
        (("x[3]_LC", "COUT"), ("y_LC", "CIN")): 0,
    }
    assert found.paths == {("x[3]_LC", "I2", "COUT"): 240, ("x[3]_LC", "CLK", "O"): 540}
    assert found.setups == {("x[3]_LC", "I2", "CLK"): 398}


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


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        ({"a": "input"}, "wide has no input clk or clock"),
        ({"clk": "input", "sda": "inout"}, "wide has ports of both directions: sda"),
    ],
)
def test_ports_that_cannot_be_wrapped_are_refused(ports, why):
    listed = {name: {"direction": way, "bits": [n]} for n, (name, way) in enumerate(ports.items())}
    netlist = {"modules": {"wide": {"attributes": {"top": "1"}, "ports": listed}}}
    with pytest.raises(ValueError, match=why):
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
