"""Circuits of real tools: delays give nextpnr's own frequency, and a collection resumes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.collection import TABLES, Collection, Made
from forerun.data.collectors.circuits.tools import Design, Plan
from forerun.data.datasets.circuits.circuit_fpga import designs
from forerun.data.errors import MissingTool
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
    tables = {name: frames[name][frames[name]["design"] == design] for name in TABLES}
    (own,) = designs(tables)
    return TimingGraph.of(own.netlist), tables["arcs"]


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
        graph, arcs = graph_of(frames, design)
        delays = arcs[["routed_1_ps", "routed_2_ps"]].to_numpy(np.float64)
        (runs,) = of(frames, design, "runs")
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
