"""Netlists from yosys are packed like nextpnr's; invalid ones are refused with cell or field."""

import copy
import json

import numpy as np
import pytest

from forerun.data.circuits.assembly import assembled
from forerun.data.circuits.netlist import CELL_KINDS
from forerun.data.circuits.yosys import BadNetlist, packed_cells, read_netlist
from forerun.features.circuits.longest_path import CombinationalLoop, TimingGraph
from tests.circuit_tools import needs_circuit_tools
from tests.data.circuits.reference import (
    DESIGNS,
    expected,
    made,
    packed_by_nextpnr,
    stored,
    structure,
)

REGISTER = {"type": "SB_DFF", "connections": {"C": [2], "D": [3], "Q": [4]}}
PORTS = {
    "clk": {"direction": "input", "bits": [2]},
    "d": {"direction": "input", "bits": [3]},
    "q": {"direction": "output", "bits": [4]},
}


def document(cells, ports=PORTS):
    return {"modules": {"m": {"attributes": {"top": "1"}, "ports": ports, "cells": cells}}}


def packed(given):
    return packed_cells(read_netlist(given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "modules"),
        ({"modules": []}, "modules"),
        ({"modules": {}}, "modules"),
        ({"modules": {"m": {}, "n": {}}}, "0 of 2"),
        (document({}), "no cells"),
        (document({"a": {"type": "$add"}}), "modules.cells.a: '\\$add'"),
        (document({"a": {"type": "SB_MAC16"}}), "SB_MAC16"),
        (document({"a": {"connections": {}}}), "modules.m.cells.a.type"),
        (document({"a": REGISTER | {"connections": {"C": ["2"]}}}), "connections.C.0"),
        (document({"a": REGISTER | {"connections": {"C": [-2]}}}), "connections.C.0"),
        (
            document({"a": REGISTER}, PORTS | {"b": {"direction": "inout", "bits": [9]}}),
            "modules.ports.b",
        ),
        (document({"$PACKER_VCC": REGISTER}), "modules.cells.\\$PACKER_VCC"),
        (
            {"modules": {name: {"cells": {"a": REGISTER}} for name in ("m", "n")}},
            "2 of 2 may be the top",
        ),
    ],
)
def test_an_error_names_the_cell_or_field(given, words):
    with pytest.raises(BadNetlist, match=words):
        packed(given)


def test_a_constant_that_only_a_port_uses_has_a_cell():
    """An output that is always 0 is driven by a cell, as nextpnr counts it."""
    ports = PORTS | {"zero": {"direction": "output", "bits": ["0"]}}
    with_zero, without = (packed(document({"a": REGISTER}, own)) for own in (ports, PORTS))
    assert {cell.name for cell in with_zero} - {cell.name for cell in without} == {
        "zero$sb_io",
        "$PACKER_GND",
    }


def test_an_inout_with_its_own_port_cell_is_read():
    pin = {"type": "SB_IO", "connections": {"PACKAGE_PIN": [9], "D_IN_0": [3]}}
    ports = {"pin": {"direction": "inout", "bits": [9]}, "clk": PORTS["clk"], "q": PORTS["q"]}
    cells = packed(document({"pin": pin, "a": REGISTER}, ports))
    kinds = [CELL_KINDS[kind] for kind in assembled(cells).netlist.kinds]
    assert kinds.count("port") == 3


def test_a_cycle_of_carries_becomes_a_loop_of_signals():
    cells = {
        name: {"type": "SB_CARRY", "connections": {"CI": [one], "CO": [other], "I0": [3]}}
        for name, one, other in (("a", 10, 11), ("b", 11, 10))
    }
    reader = {"type": "SB_LUT4", "connections": {"I3": [11], "O": [12]}}
    given = document({"reader": reader, **cells, "register": REGISTER})
    with pytest.raises(CombinationalLoop):
        TimingGraph.of(assembled(packed(given)).netlist)


def test_a_table_ignores_inputs_that_do_not_change_it():
    """0xAAAA is the first input; the others have no effect."""
    table = {
        "type": "SB_LUT4",
        "parameters": {"LUT_INIT": "1010101010101010"},
        "connections": {"I0": [3], "I1": [5], "O": [4]},
    }
    ports = PORTS | {"e": {"direction": "input", "bits": [5]}}
    paths = assembled(packed(document({"a": table}, ports))).netlist.paths
    assert list(zip(paths.source_port, paths.sink_port, strict=True)) == [("I0", "O")]


def test_registers_of_two_clocks_and_edges_are_kept_apart():
    """`a` and `b` are registers of `clk`, `c` of another clock, `d` of `clk` at its other edge."""
    ports = PORTS | {"other": {"direction": "input", "bits": [5]}}
    cells = {
        "a": {"type": "SB_DFF", "connections": {"C": [2], "D": [3], "Q": [20]}},
        "b": {"type": "SB_DFF", "connections": {"C": [2], "D": [20], "Q": [21]}},
        "c": {"type": "SB_DFF", "connections": {"C": [5], "D": [21], "Q": [22]}},
        "d": {"type": "SB_DFFN", "connections": {"C": [2], "D": [22], "Q": [4]}},
    }
    assembly = assembled(packed(document(cells, ports)))
    assert set(assembly.clocks) == {"", "clk", "clk (falling edge)", "other"}
    graphs = TimingGraph.of_clocks(assembly.netlist, assembly.clocks)
    for clock, periods in (("clk", 1), ("other", 0), ("clk (falling edge)", 0)):
        graph, arcs = graphs[clock]
        no_delay = graph.period_ps(np.zeros((len(arcs), 1)))[0]
        assert (no_delay > 0.0) == bool(periods)


def test_a_clock_from_a_phase_locked_loop_is_named_by_its_cell():
    pll = {"type": "SB_PLL40_CORE", "connections": {"REFERENCECLK": [9], "PLLOUTCORE": [2]}}
    ports = {"ref": {"direction": "input", "bits": [9]}, "d": PORTS["d"], "q": PORTS["q"]}
    assembly = assembled(packed(document({"pll": pll, "a": REGISTER}, ports)))
    assert set(assembly.clocks) == {"", "pll.PLLOUTCORE"}


@pytest.mark.parametrize(("digits", "falls"), [("0", False), ("0" * 32, False), ("1", True)])
def test_the_clock_edge_of_a_packed_register_is_read_with_any_number_of_digits(digits, falls):
    logic = {
        "type": "ICESTORM_LC",
        "parameters": {"DFF_ENABLE": "1", "NEG_CLK": digits},
        "connections": {"CLK": [2], "I0": [3], "O": [4]},
    }
    (cell,) = packed(document({"a": logic}))
    assert cell.has_register
    assert cell.falls == falls


def test_only_the_top_module_is_read():
    given = copy.deepcopy(stored("adder"))
    with_library = {"modules": given["modules"] | {"SB_LUT4": {"ports": {}, "cells": {}}}}
    assert len(packed(with_library)) == len(packed(given))


def netlist_of(given):
    return assembled(packed_cells(read_netlist(given))).netlist


@pytest.mark.parametrize("name", DESIGNS)
def test_cells_connections_and_times_are_those_of_nextpnr(name):
    assert structure(netlist_of(stored(name))) == expected(name)


@needs_circuit_tools
@pytest.mark.parametrize("name", ["comparisons", "adder"])
def test_the_installed_tools_agree(name, tmp_path):
    path = made(name, tmp_path)
    found = structure(netlist_of(json.loads(path.read_text())))
    assert found == structure(packed_by_nextpnr(path, tmp_path))


@needs_circuit_tools
def test_a_netlist_packed_by_nextpnr_is_used_unchanged(tmp_path):
    import subprocess

    path, packed = made("comparisons", tmp_path), tmp_path / "packed.json"
    command = ["nextpnr-ice40", "--hx8k", "--package", "ct256", "-q", "--pack-only"]
    subprocess.run([*command, "--json", path, "--write", packed], check=True, capture_output=True)
    found = structure(netlist_of(json.loads(packed.read_text())))
    assert found == structure(netlist_of(json.loads(path.read_text())))
