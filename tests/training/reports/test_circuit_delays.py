"""The table of errors of connections: by design, without fixed ones, and for both predictors."""

from functools import partial

import numpy as np
import pytest

from forerun.data.bundle import Bundle, bundle_folder
from forerun.data.datasets.circuits.circuit_fpga import CircuitFpga, designs
from forerun.models.circuits.netlist_boost import NetlistBoost
from forerun.models.circuits.placed_boost import PlacedBoost
from forerun.training.reports import circuit_delays
from forerun.training.reports.circuit_delays import line, lines, r2
from tests.contracts.tiny_circuits import SEEDS, tiny_tables
from tests.contracts.tiny_upstream import tiny_upstream


def cells(text):
    return [cell.strip() for cell in text.strip("|").split("|")]


def test_a_line_has_errors_over_all_connections_and_by_design():
    """One design is met exactly, the other is off by 100 ps everywhere."""
    own = list(designs(tiny_tables(1)))[:2]
    by_design = {
        design.name: [
            (design.circuit(seed, routed=True), design.routed_ps[seed] + off) for seed in SEEDS
        ]
        for design, off in zip(own, (0.0, 100.0), strict=True)
    }
    found = cells(line("unseen_family", "guess", by_design))
    assert found[:2] == ["unseen_family", "`guess`"]
    assert found[2] == str(sum(len(design.netlist.arcs) for design in own) * len(SEEDS))
    assert (found[3], found[5]) == ("50.0", "50.0, 100.0")
    median, worst = map(float, found[6].split(", "))
    assert worst < median < 1.0


def test_r2_of_the_mean_is_zero_and_of_the_truth_one():
    true = np.array([1.0, 2.0, 6.0])
    assert r2(true, true) == 1.0
    assert r2(true, np.full(3, 3.0)) == pytest.approx(0.0)


@pytest.mark.slow
def test_every_protocol_compares_the_predictor_with_the_placer(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    for predictor in (PlacedBoost, NetlistBoost):
        monkeypatch.setattr(circuit_delays, predictor.__name__, partial(predictor, trees=40))
    tables = CircuitFpga().tidy(tiny_upstream("circuit_fpga", tmp_path / "upstream"))
    Bundle.write(bundle_folder("circuit_fpga"), "circuit_fpga", tables)
    found = [cells(text) for text in lines()]
    pairs = {(protocol, name): row for protocol, name, *row in found}
    assert set(pairs) == {
        (protocol, name)
        for protocol in ("unseen_family", "large_design")
        for name in ("`nextpnr`", "`placed_boost`", "`netlist_boost`")
    }
    for protocol in ("unseen_family", "large_design"):
        placer, boost = (
            float(pairs[protocol, f"`{name}`"][1]) for name in ("nextpnr", "placed_boost")
        )
        assert boost < placer
