"""Frequencies of placed circuits: the contract, delays learnt, and what the trees may not see."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from forerun.data.circuits.netlist import Circuit
from forerun.data.datasets.circuits.circuit_fpga import designs
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import HX8K, NEXTPNR
from forerun.data.query import Query
from forerun.models.circuits.netlist_boost import frequencies
from forerun.models.circuits.placed_boost import PlacedBoost
from forerun.models.contract import PredictorContract
from tests.contracts.tiny_circuits import CONGESTED_PS, SEEDS, tiny_tables


@lru_cache(maxsize=1)
def rows() -> Measurements:
    """Circuits of seven families."""
    tables = tiny_tables()
    family = tables["runs"].groupby("design")["family"].first()
    made = [
        (own, family[own.name], Query(own.circuit(seed, routed=True), HX8K, NEXTPNR))
        for own in designs(tables)
        for seed in SEEDS
    ]
    queries = [query for _, _, query in made]
    circuits = [query.workload for query in queries]
    mhz = frequencies(circuits, [own.routed_ps for own in circuits])
    groups = {
        "family": np.array([name for _, name, _ in made]),
        "design": np.array([own.name for own, _, _ in made]),
    }
    return Measurements(queries, {"fmax_mhz": mhz}, groups)


@lru_cache(maxsize=1)
def fitted() -> PlacedBoost:
    return PlacedBoost(trees=60, threads=1).fit(rows())


class TestPlacedBoost(PredictorContract):
    """The contract of every predictor."""

    def make(self):
        return PlacedBoost(trees=8, threads=1).fit(rows())

    def training_rows(self):
        return rows()

    def queries(self):
        return rows().queries[::7]


def test_delays_of_a_family_that_was_held_out_follow_from_the_places():
    """The estimate is off by 100 ps and more; what is left is congestion, which is random."""
    out = rows().groups["family"] == "family_3"
    predictor = PlacedBoost(trees=80, threads=1, calibrated=False).fit(rows().take(~out))
    held_out = rows().take(out)
    errors, estimates = [], []
    for query in held_out.queries:
        own = query.workload
        errors += np.abs(predictor.net_ps(own) - own.routed_ps).tolist()
        estimates += np.abs(own.placement.estimated_ps - own.routed_ps).tolist()
    assert np.mean(errors) < CONGESTED_PS
    assert np.mean(errors) < 0.4 * np.mean(estimates)
    found = predictor.predict(held_out.queries).values["fmax_mhz"]
    assert found == pytest.approx(held_out.column("fmax_mhz"), rel=0.05)


def test_delays_after_routing_are_not_read_when_it_predicts():
    queries = rows().queries[:3]
    blind = [replace(query, workload=replace(query.workload, routed_ps=None)) for query in queries]
    wrong = [
        replace(query, workload=replace(query.workload, routed_ps=9.0 * query.workload.routed_ps))
        for query in queries
    ]
    found = [fitted().predict(own).values["fmax_mhz"].tolist() for own in (queries, blind, wrong)]
    assert found[0] == found[1] == found[2]


def test_it_answers_placed_circuits_alone():
    circuit = rows().queries[0].workload
    assert fitted().answers(Query(circuit, HX8K))
    assert not fitted().answers(Query(Circuit(circuit.netlist), HX8K))


def test_frequencies_of_placements_of_one_netlist_are_those_of_each_alone():
    own = [query.workload for query in rows().queries[:10]]
    together = frequencies(own, [one.routed_ps for one in own])
    alone = [frequencies([one], [one.routed_ps])[0] for one in own]
    assert together.tolist() == alone
    assert len(set(alone)) == len(alone)
    slower = frequencies(own, [2.0 * one.routed_ps for one in own])
    assert (slower < together).all()


def test_intervals_are_those_of_held_out_families():
    found = fitted().predict(rows().queries)
    low, high = found.low["fmax_mhz"], found.high["fmax_mhz"]
    assert (low < found.values["fmax_mhz"]).all()
    inside = (low <= rows().column("fmax_mhz")) & (rows().column("fmax_mhz") <= high)
    assert inside.mean() > 0.85
    assert found.coverage == 0.9
