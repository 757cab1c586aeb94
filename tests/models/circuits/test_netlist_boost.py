"""Frequencies of circuits that are not placed: the contract, and what trees may and may not see."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.circuits.netlist import Circuit
from forerun.data.query import Query
from forerun.models.circuits.netlist_boost import NetlistBoost, fixed_kinds, frequencies
from forerun.models.contract import PredictorContract
from tests.models.circuits.test_placed_boost import rows


def unplaced(query: Query) -> Query:
    return replace(query, workload=Circuit(query.workload.netlist))


@cache
def fitted(trees: int = 20) -> NetlistBoost:
    return NetlistBoost(trees=trees, threads=1).fit(rows())


class TestNetlistBoost(PredictorContract):
    """The contract of every predictor."""

    def make(self):
        return fitted(trees=8)

    def training_rows(self):
        return rows()

    def queries(self):
        return [unplaced(query) for query in rows().queries[::7]]


def test_delays_are_those_of_the_mean_over_placements():
    """The made-up circuits differ in nothing but their places, so one mean is all there is."""
    own = rows().queries[0].workload
    delays = np.array([query.workload.routed_ps for query in rows().queries])
    assert fitted().net_ps(own.netlist) == pytest.approx(delays.mean(), rel=0.25)


def test_it_answers_circuits_without_places_alone():
    placed = rows().queries[0]
    assert not fitted().answers(placed)
    assert fitted().answers(unplaced(placed))


def test_the_longest_path_is_corrected_on_held_out_families():
    """The longest of random paths is longer than the path over mean delays."""
    queries = [unplaced(query) for query in rows().queries]
    circuits = [query.workload for query in queries]
    longest = frequencies(circuits, [fitted().net_ps(one.netlist) for one in circuits])
    measured = rows().column("fmax_mhz")
    found = fitted().predict(queries).values["fmax_mhz"]
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
    predictor = replace(fitted(), fixed_ps={kind: 77.0})
    found = predictor.net_ps(clocked)
    assert (found[::4] == 77.0).all()
    assert (np.delete(found, np.arange(0, len(found), 4)) > 77.0).all()


def test_intervals_are_those_of_held_out_families():
    found = fitted().predict([unplaced(query) for query in rows().queries])
    low, high = found.low["fmax_mhz"], found.high["fmax_mhz"]
    inside = (low <= rows().column("fmax_mhz")) & (rows().column("fmax_mhz") <= high)
    assert inside.mean() > 0.85


def test_more_cells_than_any_circuit_of_the_training_set_is_a_limit():
    query = unplaced(rows().queries[0])
    netlist = query.workload.netlist
    kinds = np.concatenate([netlist.kinds, np.zeros(5, dtype=np.intp)])
    larger = replace(query, workload=Circuit(replace(netlist, kinds=kinds)))
    own, outside = fitted().predict([query, larger]).limits
    assert not own
    (limit,) = outside
    assert (limit.feature, limit.value) == ("number of cells", float(len(kinds)))
    assert not limit.in_domain
