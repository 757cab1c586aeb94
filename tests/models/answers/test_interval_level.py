"""Intervals of other levels, and power that a device does not exceed."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from forerun.data.errors import BadRequest
from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark, Diffusion, Kernel, Network
from forerun.models.answers import interval_level
from forerun.models.answers.drawn_power import (
    ABOVE_DESIGN_POWER,
    most_w,
    within_drawn,
)
from forerun.models.answers.interval_level import at_level, check_level, level_notes
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.prediction import Estimate
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import question_about
from forerun.service.answers.ranking import swept
from forerun.training.protocols.power.torch_op_energy import board
from tests.devices import CATALOG, L4
from tests.models.networks.test_device_time import network

# Intervals of another level: nested, within bounds, and those of 90 % as predictors give them.


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
        BadRequest, match=r"level: intervals of kind benchmark were calibrated only at 90 %"
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


# No answer about a network or an operator has more power than its device draws.


GPUS = tuple(device for device in CATALOG if device.kind == "gpu" and device.tdp_w)
ASKED = ("latency_ms", "power_w", "energy_j")
HEAVY = Network(network(512, 12), 256)


@pytest.fixture(scope="module")
def in_use():
    return InUse(bundled(Scope(frozenset({"network", "kernel"}))))


def limited(device, limit_w=None, workload=HEAVY):
    return Query(workload, CATALOG.get(device), operation=Operation(power_limit_w=limit_w))


def answered(queries, in_use):
    return answers_to([question_about(query, ASKED) for query in queries], in_use)


def test_no_device_draws_more_than_its_design_power(in_use):
    kernel = Kernel(HEAVY.graph.operators[0])
    queries = [Query(run, gpu) for gpu in GPUS for run in (HEAVY, kernel)]
    at_it = 0
    for query, answer in zip(queries, answered(queries, in_use), strict=True):
        power, tdp = answer.metrics["power_w"], query.device.tdp_w
        if power is not None:
            most = tdp * ABOVE_DESIGN_POWER.get(query.device.name, 1.0)
            assert power.low <= power.value <= power.high <= most, query.device.name
            assert power.value <= tdp
            at_it += power.high == tdp
    assert at_it > 10


def test_energy_is_the_product_of_time_and_the_power_that_is_answered(in_use):
    (answer,) = answered([limited("rtx-4090")], in_use)
    power, time, energy = (answer.metrics[name] for name in ("power_w", "latency_ms", "energy_j"))
    assert power.high == 450.0
    for end in ("value", "low", "high"):
        product = getattr(power, end) * getattr(time, end) / 1e3
        assert getattr(energy, end) == pytest.approx(product)


@pytest.mark.parametrize(("device", "share"), [("rtx-4090", 1.0), ("a40", 1.012)])
def test_under_a_limit_power_ends_at_the_limit_or_at_what_was_measured_above_it(
    in_use, device, share
):
    watts = [0.5 * CATALOG.get(device).tdp_w, 0.8 * CATALOG.get(device).tdp_w]
    found = answered([limited(device, own) for own in watts], in_use)
    runs = swept(limited(device), watts, 0.1, in_use).runs
    for own, answer, run in zip(watts, found, runs, strict=True):
        power = answer.metrics["power_w"]
        assert power.value <= power.high <= share * own
        assert power.high == pytest.approx(share * own)
        assert (run.power_w.value, run.power_w.high) == (power.value, power.high)


def test_an_end_above_the_design_power_has_a_note(in_use):
    a30, l4 = answered([limited("a30"), limited("l4")], in_use)
    assert a30.metrics["power_w"].high > 165.0
    said = "power: runs on this device drew up to 0.8 % more than its design power"
    assert said in a30.limits
    assert not any("more than its" in line for line in l4.limits)


def test_a_limit_above_the_design_power_bounds_nothing():
    assert most_w(limited("rtx-4090", 600.0)) == most_w(limited("rtx-4090")) == 450.0
    assert most_w(limited("rtx-4090", 300.0)) == 300.0
    unknown = CATALOG.get("rtx-4090").model_copy(update={"tdp_w": None})
    assert most_w(Query(HEAVY, unknown)) is None


def test_what_a_user_measured_above_the_design_power_stays_inside():
    own = {"power_w": Estimate(440.0, 400.0, 472.0, 0.9)}
    assert within_drawn(own, limited("rtx-4090"), measured=True) == own
    high = within_drawn(own, limited("rtx-4090"), measured=False)["power_w"]
    assert high == replace(own["power_w"], high=450.0)


def test_jobs_that_were_measured_under_limits_are_left_as_they_are():
    job = limited("a40", 100.0, Benchmark("zeus", ()))
    own = {"power_w": Estimate(130.0, 120.0, 140.0, 0.9)}
    assert within_drawn(own, job, measured=False) == own


def test_nothing_that_was_measured_lies_above_the_bound(reference):
    """Averages above the design power, or above a power limit, in the training set."""
    ops = pd.read_parquet(reference / "torch_op_energy" / "ops.parquet")
    for device, rows in ops.groupby("device"):
        most = most_w(limited(str(device)))
        assert rows[["power_w", "train_power_w"]].max().max() <= most
    packaged = files("forerun.data") / "measured" / "torch_gpu" / "runs.parquet"
    runs = pd.read_parquet(str(packaged), columns=["device", "power_w"])
    for device, watts in runs.groupby("device")["power_w"]:
        assert watts.max() <= most_w(limited(str(device)))
    trace = pd.read_csv(reference / "zeus_powercap" / "power_trace_3gpus.csv")
    for (gpu, limit), rows in trace.groupby(["gpu", "power_limit"]):
        device = board(str(gpu), CATALOG).name
        assert rows["average_power"].max() <= most_w(limited(device, float(limit)))
