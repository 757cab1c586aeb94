"""Circuits are answered with frequency, critical path and resources, or a problem that says why."""

import copy
from collections import Counter

import pytest
from fastapi.testclient import TestClient

from forerun.features.circuits.longest_path import TimingGraph
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.circuits import netlist_boost
from forerun.service.http.app import create_app
from tests.data.circuits.reference import expected, stored
from tests.data.circuits.test_yosys import PORTS, REGISTER, document

LOOP = {"type": "SB_LUT4", "connections": {"I0": [5], "O": [5]}}
NAMES = {"logic_cells": "logic", "memories": "memory", "ports": "port", "globals": "global"}


@pytest.fixture(scope="module")
def circuits(tmp_path_factory):
    from forerun.service.settings import Settings

    settings = Settings(home=tmp_path_factory.mktemp("home"), port=0)
    loaded = bundled(Scope(frozenset({"circuit"})))
    with TestClient(create_app(settings, loaded), raise_server_exceptions=False) as client:
        yield lambda body: client.post("/v1/circuit", json=body)


@pytest.mark.parametrize("name", ["comparisons", "divider_serial", "fifo"])
def test_the_parts_of_the_period_add_up_to_it(circuits, name):
    (clock,) = circuits(stored(name)).json()["clocks"]
    own = clock["fmax_mhz"]
    assert clock["clock"] == "clk"
    assert own["low"] < own["value"] < own["high"]
    parts, path = clock["breakdown_ps"], clock["critical_path"]
    assert sum(parts.values()) == pytest.approx(1e6 / own["value"], rel=1e-9)
    reached = 0.0
    for step in path:
        assert step["cell_ps"] > 0.0
        assert step["connection_ps"] >= 0.0
        reached += step["cell_ps"] + step["connection_ps"]
        assert reached == pytest.approx(step["arrival_ps"], rel=1e-9)
    assert parts["cells"] + parts["connections"] == pytest.approx(reached, rel=1e-9)
    assert 0.0 < parts["setup"] < 500.0


@pytest.mark.parametrize("name", ["adder", "fifo"])
def test_resources_are_those_that_nextpnr_counts(circuits, name):
    found = circuits(stored(name)).json()
    cells = expected(name)["cells"]
    used = {own: resource["used"] for own, resource in found["resources"].items()}
    assert used == {own: cells.get(kind, 0) for own, kind in NAMES.items()}
    assert found["fits"]


def test_a_circuit_with_too_many_ports_does_not_fit(circuits):
    ports = {**PORTS, "wide": {"direction": "input", "bits": list(range(100, 400))}}
    found = circuits(document({"a": REGISTER}, ports)).json()
    assert found["resources"]["ports"] == {"used": 303, "available": 206}
    assert not found["fits"]
    (clock,) = found["clocks"]
    assert clock["fmax_mhz"] is None
    assert clock["missing"] == "it does not fit: it takes 303 of 206 ports"


def test_a_register_that_feeds_no_other_has_no_frequency(circuits):
    (clock,) = circuits(document({"a": REGISTER})).json()["clocks"]
    assert clock["fmax_mhz"] is None
    assert clock["missing"] == "no register of this clock feeds another"


def test_several_clocks_are_outside_the_training_set(circuits):
    given = copy.deepcopy(stored("adder"))
    module = given["modules"]["top"]
    registers = [cell for cell in module["cells"].values() if cell["type"].startswith("SB_DFF")]
    module["ports"]["second"] = {"direction": "input", "bits": [90_000]}
    for register in registers[::2]:
        register["connections"]["C"] = [90_000]
    found = circuits(given).json()
    assert {clock["clock"] for clock in found["clocks"]} == {"clk", "second"}
    assert not found["in_domain"]
    assert any("several clocks" in line for line in found["limits"])


def chains(clocks: int, registers: int) -> dict:
    """Shift registers, each with a clock of its own."""
    cells = {
        f"c{clock}r{at}": {
            "type": "SB_DFF",
            "connections": {
                "C": [10 + clock],
                "D": [1000 * (clock + 1) + at],
                "Q": [1000 * (clock + 1) + at + 1],
            },
        }
        for clock in range(clocks)
        for at in range(registers)
    }
    inputs = {f"c{clock}": {"direction": "input", "bits": [10 + clock]} for clock in range(clocks)}
    data = {
        f"d{clock}": {"direction": "input", "bits": [1000 * (clock + 1)]} for clock in range(clocks)
    }
    return document(cells, inputs | data)


def test_a_further_clock_costs_the_work_of_its_own_paths(circuits, monkeypatch):
    """Connections that arrivals are computed over, and graphs of all cells that are made."""
    work = Counter()

    def counted(owner, name, size):
        inner = getattr(owner, name)

        def call(*given):
            work[name] += size(*given)
            return inner(*given)

        monkeypatch.setattr(owner, name, call)

    counted(TimingGraph, "arrivals_ps", lambda graph, net_ps: len(graph.sink))
    counted(netlist_boost, "features_around", lambda netlist: 1)
    done = {}
    for clocks in (1, 40):
        work.clear()
        found = circuits(chains(clocks, 240 // clocks)).json()
        assert len(found["clocks"]) == clocks
        done[clocks] = dict(work)
    assert done[40]["features_around"] == 1
    assert done[40]["arrivals_ps"] <= done[1]["arrivals_ps"]


def test_a_clock_gets_the_answer_that_it_gets_alone(circuits):
    whole = circuits(chains(3, 8)).json()["clocks"]
    assert len({clock["fmax_mhz"]["value"] for clock in whole}) > 1
    for clock in whole:
        assert sum(clock["breakdown_ps"].values()) == pytest.approx(
            1e6 / clock["fmax_mhz"]["value"], rel=1e-9
        )
        assert {step["sink"][:2] for step in clock["critical_path"]} == {clock["clock"]}


def test_paths_that_too_many_clocks_share_are_refused_with_their_number(circuits, monkeypatch):
    monkeypatch.setattr(netlist_boost, "MOST_CONNECTIONS", 10)
    found = circuits(chains(3, 8))
    assert found.status_code == 422
    assert "21 connections" in found.json()["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"modules": {}}, "modules"),
        (document({"a": {"type": "$add"}}), "$add"),
        ([], "object"),
        (document({"a": LOOP, "b": REGISTER}), "themselves"),
        (document({"a": LOOP}), "themselves"),
    ],
)
def test_a_netlist_that_cannot_be_used_is_a_problem(circuits, body, words):
    found = circuits(body)
    assert found.status_code == 422
    assert words in found.text


def test_an_artifact_without_circuits_says_how_to_fit_one(client):
    found = client.post("/v1/circuit", json=stored("adder"))
    assert found.status_code == 422
    assert "forerun train netlist_boost" in found.json()["detail"]
