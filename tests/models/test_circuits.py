"""Frequency of circuits."""

from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import pytest

from forerun.data.circuits.netlist import Circuit
from forerun.data.datasets.circuits.circuit_fpga import designs
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import HX8K, NEXTPNR
from forerun.data.query import Query
from forerun.models.circuits.netlist_boost import NetlistBoost, fixed_kinds, frequencies
from forerun.models.circuits.placed_boost import PlacedBoost
from forerun.models.contract import PredictorContract
from tests.contracts.tiny_circuits import CONGESTED_PS, SEEDS, tiny_tables
from tests.models.judged import inside

# Frequencies of placed circuits: the contract, delays learnt, and what the trees may not see.


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

    @staticmethod
    @cache
    def make():
        return PlacedBoost(trees=8, threads=1).fit(rows())

    training_rows = staticmethod(rows)

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
    assert (found.low["fmax_mhz"] < found.values["fmax_mhz"]).all()
    assert inside(found, rows(), "fmax_mhz").mean() > 0.85
    assert found.coverage == 0.9


# Frequencies of circuits that are not placed: the contract, and what trees may and may not see.


def unplaced(query: Query) -> Query:
    return replace(query, workload=Circuit(query.workload.netlist))


@cache
def fitted_to_netlists(trees: int = 20) -> NetlistBoost:
    return NetlistBoost(trees=trees, threads=1).fit(rows())


class TestNetlistBoost(PredictorContract):
    """The contract of every predictor."""

    def make(self):
        return fitted_to_netlists(trees=8)

    training_rows = staticmethod(rows)

    def queries(self):
        return [unplaced(query) for query in rows().queries[::7]]


def test_delays_are_those_of_the_mean_over_placements():
    """The made-up circuits differ in nothing but their places, so one mean is all there is."""
    own = rows().queries[0].workload
    delays = np.array([query.workload.routed_ps for query in rows().queries])
    assert fitted_to_netlists().net_ps(own.netlist) == pytest.approx(delays.mean(), rel=0.25)


def test_it_answers_circuits_without_places_alone():
    placed = rows().queries[0]
    assert not fitted_to_netlists().answers(placed)
    assert fitted_to_netlists().answers(unplaced(placed))


def test_the_longest_path_is_corrected_on_held_out_families():
    """The longest of random paths is longer than the path over mean delays."""
    queries = [unplaced(query) for query in rows().queries]
    circuits = [query.workload for query in queries]
    longest = frequencies(circuits, [fitted_to_netlists().net_ps(one.netlist) for one in circuits])
    measured = rows().column("fmax_mhz")
    found = fitted_to_netlists().predict(queries).values["fmax_mhz"]
    assert np.median(longest / measured) > 1.1
    assert np.median(found / measured) == pytest.approx(1.0, abs=0.05)


def test_connections_that_no_router_chooses_have_the_median_of_their_kind():
    own = rows().queries[0].workload
    arcs = own.netlist.arcs
    clocked = replace(
        own.netlist, arcs=replace(arcs, sink_port=["CLK" if i % 4 == 0 else p for i, p in
                                                   enumerate(arcs.sink_port)])
    )  # fmt: skip
    assert fixed_kinds(own.netlist) == {}
    (kind,) = fixed_kinds(clocked)
    predictor = replace(fitted_to_netlists(), fixed_ps={kind: 77.0})
    found = predictor.net_ps(clocked)
    assert (found[::4] == 77.0).all()
    assert (np.delete(found, np.arange(0, len(found), 4)) > 77.0).all()


def test_intervals_of_netlists_are_those_of_held_out_families():
    found = fitted_to_netlists().predict([unplaced(query) for query in rows().queries])
    assert inside(found, rows(), "fmax_mhz").mean() > 0.85


def test_more_cells_than_any_circuit_of_the_training_set_is_a_limit():
    query = unplaced(rows().queries[0])
    netlist = query.workload.netlist
    kinds = np.concatenate([netlist.kinds, np.zeros(5, dtype=np.intp)])
    larger = replace(query, workload=Circuit(replace(netlist, kinds=kinds)))
    own, outside = fitted_to_netlists().predict([query, larger]).limits
    assert not own
    (limit,) = outside
    assert (limit.feature, limit.value) == ("number of cells", float(len(kinds)))
    assert not limit.in_domain
