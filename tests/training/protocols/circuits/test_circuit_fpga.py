"""Protocols of circuit_fpga: what is held out, what is asked, and the placer's own estimate."""

from dataclasses import replace

import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.circuits.circuit_fpga import PROCESSORS, CircuitFpga
from forerun.data.device import DeviceCatalog
from forerun.models.circuits.placed_boost import frequencies
from forerun.training.protocols.circuits.circuit_fpga import (
    CircuitFpgaProtocols,
    circuit_measurements,
    circuit_of,
    estimated_ps,
)
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("circuits")
    tables = CircuitFpga().tidy(tiny_upstream("circuit_fpga", folder / "upstream"))
    return Bundle.write(folder / "bundle", "circuit_fpga", tables)


def test_processors_are_a_test_set_that_nothing_is_trained_on(bundle, tmp_path):
    tables = {name: bundle.table(name) for name in ("runs", "nodes", "arcs", "paths", "words")}
    runs = tables["runs"].copy()
    runs["family"] = runs["family"].replace("family_2", PROCESSORS[0])
    own = Bundle.write(tmp_path / "bundle", "circuit_fpga", {**tables, "runs": runs})
    protocols = CircuitFpgaProtocols()
    assert PROCESSORS[0] not in protocols.training_rows(own, CATALOG).groups["family"]
    for fold in protocols.folds(own, CATALOG):
        assert PROCESSORS[0] not in fold.train.groups["family"]
        for task in fold.tasks:
            families = set(task.held_out.groups["family"])
            assert (families == {PROCESSORS[0]}) == (fold.protocol == "processor")
            assert fold.protocol == "processor" or PROCESSORS[0] not in families


def test_circuits_that_are_asked_about_have_no_routes_and_those_of_training_do(bundle):
    for fold in CircuitFpgaProtocols().folds(bundle, CATALOG):
        asked = [circuit_of(query) for task in fold.tasks for query in task.held_out.queries]
        assert all(own.routed_ps is None for own in asked)
        assert all(circuit_of(query).routed_ps is not None for query in fold.train.queries)
        placed, unplaced = fold.tasks
        assert all(circuit_of(query).placement is not None for query in placed.held_out.queries)
        assert all(circuit_of(query).placement is None for query in unplaced.held_out.queries)


def test_a_design_with_two_clocks_has_no_row(bundle):
    runs = bundle.table("runs")
    measured, kept = circuit_measurements(bundle)
    assert len(measured) == len(kept) == int(runs["fmax_mhz"].notna().sum()) < len(runs)
    assert runs["fmax_mhz"].to_numpy()[kept].tolist() == measured.column("fmax_mhz").tolist()


def test_frequencies_of_the_table_follow_from_the_delays_after_routing(bundle):
    measured, _ = circuit_measurements(bundle)
    own = [circuit_of(query) for query in measured.queries]
    assert frequencies(own, [one.routed_ps for one in own]) == pytest.approx(
        measured.column("fmax_mhz")
    )


def test_the_baseline_is_the_placer_s_estimate_except_for_fixed_connections(bundle):
    measured, _ = circuit_measurements(bundle)
    own = circuit_of(measured.queries[0])
    (plain,) = estimated_ps([own], [own])
    assert plain.tolist() == own.placement.estimated_ps.tolist()
    ports = ["COUT", *own.netlist.arcs.source_port[1:]]
    carried = replace(
        own, netlist=replace(own.netlist, arcs=replace(own.netlist.arcs, source_port=ports))
    )
    (found,) = estimated_ps([carried], [carried])
    assert found[0] == own.routed_ps[0]
    assert found[1:].tolist() == plain[1:].tolist()
