"""Intervals of another level: nested, within bounds, and those of 90 % as predictors give them."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.errors import BadRequest
from forerun.data.query import Query
from forerun.data.workload import Benchmark, Diffusion, Kernel, Network
from forerun.models.answers import interval_level
from forerun.models.answers.interval_level import at_level, check_level, level_notes
from forerun.models.prediction import Estimate
from tests.devices import L4
from tests.models.networks.test_device_time import network

NETWORK = Network(network(64, 2), 8)
QUERIES = [
    Query(workload, L4)
    for workload in (
        NETWORK,
        replace(NETWORK, phase="training"),
        Kernel(NETWORK.graph.operators[0]),
        Diffusion(2.6e9, 1024, 1024),
    )
]
LEVELS = (50.0, 62.5, 80.0, 89.9, 90.0, 93.0, 95.0, 98.0, 99.0)
KNOWN = {"latency_ms": Estimate(2.0, 1.5, 3.0, 0.9), "power_w": Estimate(50.0, 30.0, 70.0, 0.9)}


def test_nothing_changes_at_the_usual_level():
    for query in QUERIES:
        assert at_level(KNOWN, query) == KNOWN
        assert level_notes(KNOWN, query) == ()


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.workload.kind)
def test_a_higher_level_contains_a_lower_one_and_says_its_level(query):
    found = [at_level(KNOWN, replace(query, level=level)) for level in LEVELS]
    for name in KNOWN:
        lows, highs = ([getattr(one[name], end) for one in found] for end in ("low", "high"))
        assert (np.diff(lows) <= 0.0).all()
        assert (np.diff(highs) > 0.0).all()
        assert [one[name].coverage for one in found] == [level / 100.0 for level in LEVELS]
        assert {one[name].value for one in found} == {KNOWN[name].value}


def test_both_sides_are_scaled_alike_on_a_logarithmic_scale():
    own = at_level(KNOWN, replace(QUERIES[0], level=80.0))["latency_ms"]
    ratios = [np.log(own.low / 2.0) / np.log(1.5 / 2.0), np.log(own.high / 2.0) / np.log(3.0 / 2.0)]
    assert ratios[0] == pytest.approx(ratios[1])
    assert 0.0 < ratios[0] < 1.0


def test_what_is_not_calibrated_stays_but_energy_follows_power():
    estimates = {
        **KNOWN,
        "peak_memory_mib": Estimate(900.0, 500.0, 2000.0),
        "energy_j": Estimate(0.1, 0.045, 0.21),
    }
    found = at_level(estimates, replace(QUERIES[0], level=95.0))
    assert found["peak_memory_mib"] == estimates["peak_memory_mib"]
    energy, power, time = (found[name] for name in ("energy_j", "power_w", "latency_ms"))
    assert energy.high == pytest.approx(power.high * time.high / 1e3)
    assert energy.coverage is None


def test_no_power_ends_below_that_of_the_waiting_device_unless_it_did():
    wide = {"power_w": Estimate(50.0, 20.0, 70.0, 0.9)}
    low = at_level(wide, replace(QUERIES[0], level=99.0))["power_w"].low
    least = interval_level.waiting_w(L4)
    assert low == least < 20.0
    lower = {"power_w": Estimate(50.0, 0.5 * least, 70.0, 0.9)}
    assert at_level(lower, replace(QUERIES[0], level=99.0))["power_w"].low == 0.5 * least


def test_a_measured_coverage_moves_with_the_level():
    own = {"latency_ms": Estimate(2.0, 1.5, 3.0, 0.85)}
    shares = [
        at_level(own, replace(QUERIES[0], level=level))["latency_ms"].coverage for level in LEVELS
    ]
    assert shares == sorted(shares)
    assert shares[LEVELS.index(90.0)] == 0.85
    assert shares[0] < 0.85 < shares[-1]


def test_kinds_without_measured_ratios_are_refused():
    query = Query(Benchmark("some", ()), L4)
    check_level(query)
    with pytest.raises(
        BadRequest, match=r"level: intervals of kind benchmark were calibrated at 90 % alone"
    ):
        check_level(replace(query, level=95.0))


def test_levels_beyond_the_held_out_groups_are_said_to_be_extrapolated(monkeypatch):
    own = {"levels": [50, 90, 99], "ratios": [0.4, 1.0, 2.0]}
    table = {"networks": {"groups": 40, **own}, "memory": {"groups": 99, **own}}
    monkeypatch.setattr(interval_level, "_table", lambda: table)
    metrics = ("latency_ms", "power_w", "peak_memory_mib")
    (note,) = level_notes(metrics, replace(QUERIES[0], level=96.0))
    assert str(note).endswith("extrapolated from few held-out groups (40 of networks)")
    assert note.in_domain
    assert level_notes(metrics, replace(QUERIES[0], level=95.0)) == ()
    assert level_notes(("peak_memory_mib",), replace(QUERIES[0], level=99.0)) == ()


def test_the_packaged_table_is_monotone_and_one_at_90():
    for family in {*interval_level.FAMILIES.values(), "memory"}:
        own = interval_level._table()[family]
        assert own["ratios"] == sorted(own["ratios"])
        assert (own["levels"][0], own["levels"][-1]) == (50.0, 99.0)
        assert own["ratios"][own["levels"].index(90.0)] == 1.0
