"""Netlists of yosys are packed as nextpnr packs them."""

import json

import pytest

from forerun.data.circuits.assembly import assembled
from forerun.data.circuits.yosys import packed_cells, read_netlist
from tests.circuit_tools import needs_circuit_tools
from tests.data.circuits.reference import (
    DESIGNS,
    expected,
    made,
    packed_by_nextpnr,
    stored,
    structure,
)


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
def test_a_netlist_that_nextpnr_packed_is_taken_as_it_is(tmp_path):
    import subprocess

    path, packed = made("comparisons", tmp_path), tmp_path / "packed.json"
    command = ["nextpnr-ice40", "--hx8k", "--package", "ct256", "-q", "--pack-only"]
    subprocess.run([*command, "--json", path, "--write", packed], check=True, capture_output=True)
    found = structure(netlist_of(json.loads(packed.read_text())))
    assert found == structure(netlist_of(json.loads(path.read_text())))
