"""`forerun predict` on circuits: netlists of yosys, and Verilog where yosys is installed."""

import json
import re

import pytest

from tests.circuit_tools import needs_circuit_tools
from tests.data.circuits.reference import COMPARISONS, stored


@pytest.fixture
def netlist(tmp_path):
    path = tmp_path / "divider.json"
    path.write_text(json.dumps(stored("divider_serial")))
    return path


def test_the_frequency_and_the_critical_path_are_printed(forerun, netlist):
    code, out, err = forerun("predict", netlist, "--explain")
    assert code == 0, err
    assert " MHz" in out
    assert "of 7,680 logic cells" in out
    assert "critical path of clk" in out
    assert " -> " in out
    (line,) = (line for line in out.splitlines() if line.startswith("period of "))
    whole, parts = re.match(r"period of (\d+) ps at [\d.]+ MHz = (.*)", line).groups()
    signed = [float(sign + ps) for sign, ps in re.findall(r"(-?) ?[a-z]+ (\d+)", parts)]
    assert len(signed) == 4
    assert sum(signed) == pytest.approx(float(whole), abs=2.5)


def test_json_is_the_answer_of_the_service(forerun, netlist):
    code, out, err = forerun("predict", netlist, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["clocks"][0]["fmax_mhz"]["unit"] == "MHz"
    assert found["device"]["name"] == "lattice-ice40-hx8k"


def test_another_device_or_an_option_of_networks_is_refused(forerun, netlist):
    code, _, err = forerun("predict", netlist, "--device", "l4")
    assert code != 0
    assert "lattice-ice40-hx8k" in err
    code, _, err = forerun("predict", netlist, "--batch-size", 8)
    assert code != 0
    assert "--batch-size" in err


def test_a_picture_of_a_circuit_is_refused(forerun, netlist, tmp_path):
    code, _, err = forerun("predict", netlist, "--picture", tmp_path / "x.svg")
    assert code != 0
    assert "networks and hardware designs" in " ".join(err.split())


@needs_circuit_tools
def test_verilog_is_mapped_by_yosys(forerun, tmp_path):
    path = tmp_path / "comparisons.v"
    path.write_text(COMPARISONS)
    code, out, err = forerun("predict", path)
    assert code == 0, err
    assert "comparisons.v on lattice-ice40-hx8k" in out
    path.write_text("module comparisons(")
    code, _, err = forerun("predict", path)
    assert code != 0
    assert "syntax error" in err


def test_verilog_without_yosys_says_what_to_install(forerun, tmp_path, monkeypatch):
    path = tmp_path / "comparisons.v"
    path.write_text(COMPARISONS)
    monkeypatch.setattr("forerun.data.collectors.circuits.tools.shutil.which", lambda _: None)
    code, _, err = forerun("predict", path)
    assert code != 0
    assert "apt-get install yosys" in err
