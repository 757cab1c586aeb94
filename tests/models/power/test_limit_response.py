"""Runs under a power limit."""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Kernel
from forerun.models.baselines.roofline import Roofline
from forerun.models.power.limit_response import (
    BORROWED,
    NO_POWER,
    NO_TDP,
    POWER,
    SLOWEST,
    TIME,
    CappedRuns,
    LimitResponse,
    above_design_power,
    clock,
    demand,
    fit_response,
    followed_power,
    stretched,
)
from forerun.models.power.limit_sweep import power_sweep
from forerun.models.power.training_jobs import PowerCap
from forerun.models.prediction import Predictions
from forerun.models.router import Router
from forerun.training.protocols.power.torch_op_energy import runs as zeus_runs
from tests.contracts.power_runs import GPUS, query, runs
from tests.devices import CATALOG, T4, V100

# A power limit on any workload: less power and more time, no effect above the demand.


A100 = CATALOG.get("a100-pcie-40gb")
BARE = A100.model_copy(update={"tdp_w": None})
RELU = Operator("elementwise", "relu", ((8, 64),), ((8, 64),))
LIMITS = st.lists(st.floats(20.0, 400.0), min_size=2, max_size=12).map(
    lambda x: np.array(sorted(x))
)
POWERS = st.floats(15.0, 250.0)


@dataclass(frozen=True)
class Hot:
    """Predicts 2 ms and 240 W for every operator, with intervals."""

    power_w: float = 240.0
    name: ClassVar[str] = "hot"
    metrics: ClassVar[tuple[str, ...]] = (TIME, POWER)

    def answers(self, query):
        return query.workload.kind == "kernel"

    def fit(self, measurements):
        return self

    def adapt(self, measurements):
        return self

    def predict(self, queries):
        values = {TIME: np.full(len(queries), 2.0), POWER: np.full(len(queries), self.power_w)}
        low, high = ({k: v * f for k, v in values.items()} for f in (0.8, 1.25))
        return Predictions(values, low, high, 0.9)


@dataclass(frozen=True)
class Learner(Hot):
    """Keeps the times of its support rows."""

    seen: tuple[float, ...] = ()

    def adapt(self, measurements):
        return replace(self, seen=tuple(measurements.values[TIME].tolist()))


def asked(limit_w, device=A100):
    return Query(Kernel(RELU), device, operation=Operation(power_limit_w=limit_w))


@given(LIMITS, POWERS)
def test_power_never_rises_and_time_never_falls_when_the_limit_falls(limits, power):
    many = np.ones(len(limits))
    watts, times = LimitResponse().ratios(limits, power * many, 250.0 * many)
    assert (np.diff(watts) >= -1e-9).all()
    assert (np.diff(times) <= 1e-9).all()
    assert (watts <= 1.0 + 1e-12).all()
    assert (times >= 1.0 - 1e-12).all()


def test_without_a_limit_answers_are_untouched():
    free = Router((Hot(),)).predict([asked(None), asked(250.0)])
    np.testing.assert_array_equal(free.values[POWER], 240.0)
    np.testing.assert_array_equal(free.values[TIME], 2.0)
    assert list(free.limits) == [(), ()]


@pytest.mark.parametrize("limit", [60.0, 80.0, 100.0, 125.0])
def test_power_at_a_binding_limit_is_exactly_the_limit(limit):
    """The result is 60 W and not 59.99999999998: the error of the bisection cancels."""
    power, tdp = np.array([240.0]), np.array([250.0])
    watts, _ = LimitResponse().ratios(np.array([limit]), power, tdp)
    assert (watts * power)[0] == pytest.approx(limit, rel=1e-14)


@given(st.floats(90.0, 240.0))
def test_capped_energy_is_capped_power_times_capped_time(limit):
    answers = Router((Hot(),)).predict([asked(limit)])
    for column in (answers.values, answers.low, answers.high):
        assert column["energy_j"][0] == pytest.approx(column[POWER][0] * column[TIME][0] / 1e3)
    assert answers.low[POWER][0] <= answers.values[POWER][0] <= answers.high[POWER][0]
    assert answers.low[TIME][0] <= answers.values[TIME][0] <= answers.high[TIME][0]


def test_a_binding_limit_lowers_power_lengthens_time_and_names_its_training_set():
    answer = Router((Hot(),)).predict([asked(150.0)])[0]
    assert answer.estimates[POWER].value == pytest.approx(150.0, rel=0.05)
    assert answer.estimates[TIME].value > 2.0
    assert answer.limits == BORROWED
    assert not answer.in_domain


def test_an_interval_around_capped_power_ends_near_the_limit():
    answers = Router((Hot(),)).predict([asked(None), asked(150.0)])
    assert answers.high[POWER][0] == 300.0
    assert answers.high[POWER][1] <= 1.05 * 150.0 * (1 + 1e-9)


class TimeOnly(Hot):
    metrics = (TIME,)

    def predict(self, queries):
        return Predictions({TIME: np.full(len(queries), 2.0)})


@pytest.mark.parametrize(
    ("part", "query", "estimates", "limits"),
    [
        (Hot(60.0), asked(150.0), {POWER: 60.0, TIME: 2.0}, ()),
        (Hot(), asked(900.0), {POWER: 240.0, TIME: 2.0}, (above_design_power(900.0, 250.0),)),
        (Hot(), asked(150.0, BARE), {POWER: 240.0, TIME: 2.0}, (NO_TDP,)),
        (TimeOnly(), asked(150.0), {TIME: 2.0}, (NO_POWER,)),
    ],
    ids=["a cool workload", "above the design power", "no design power", "no predicted power"],
)
def test_a_limit_without_effect_leaves_the_prediction_and_says_why(part, query, estimates, limits):
    answer = Router((part,)).predict([query])[0]
    assert {name: answer.estimates[name].value for name in estimates} == estimates
    assert answer.limits == limits


def test_limits_far_below_the_measured_ones_have_no_prediction():
    answer = Router((Hot(),)).predict([asked(50.0)])[0]
    assert not answer.estimates
    assert any("20% of the TDP" in str(line) for line in answer.limits)


def test_no_limit_makes_a_run_faster_than_it_could_be_without():
    answers = Router((Hot(),)).predict([asked(None), asked(235.0), asked(120.0)])
    assert (answers.low[TIME] >= answers.low[TIME][0]).all()


def test_rows_measured_under_a_limit_do_not_adapt_predictions_without_one():
    queries = [asked(150.0), asked(None), asked(400.0)]
    predictor = Router((Learner(),))
    values = {TIME: np.array([9.0, 2.0, 2.0])}
    (part,) = predictor.adapt(Measurements(queries, values)).parts
    assert part.seen == (2.0, 2.0)


@pytest.mark.slow
def test_a_device_in_the_training_set_has_no_limit_line_about_other_devices():
    response = fit_response(runs())
    mine, other = CATALOG.get("v100-pcie-32gb"), A100
    assert response.limits(mine) == ()
    assert response.limits(other) == BORROWED


def test_only_runs_that_differ_in_the_limit_alone_are_compared():
    rows = runs(("a40",), (16,))
    found = CappedRuns.of(rows)
    assert len(found.queries) == len(rows) - 2
    assert (found.power <= 0.0).all()
    assert (found.time >= 0.0).all()
    lonely = [replace(q, operation=Operation()) for q in rows.queries]
    assert not len(CappedRuns.of(replace(rows, queries=lonely)).queries)


@pytest.mark.parametrize(
    ("tdp_w", "highest_w", "compared"),
    [(250.0, 250.0, 1), (250.0, 240.0, 1), (250.0, 225.0, 0), (None, 250.0, 0)],
)
def test_runs_are_compared_with_one_at_or_near_the_design_power(tdp_w, highest_w, compared):
    device = A100.model_copy(update={"tdp_w": tdp_w})
    values = {POWER: np.array([140.0, 220.0]), TIME: np.array([3.0, 2.0])}
    found = CappedRuns.of(Measurements([query(device, w) for w in (150.0, highest_w)], values))
    assert len(found.queries) == compared


@pytest.mark.reference
@pytest.mark.parametrize(
    ("gpu", "power", "time"), [("A40", 4.5, 11), ("P100", 4, 4), ("V100", 5, 8)]
)
def test_errors_on_a_held_out_gpu_are_as_documented(reference, gpu, power, time):
    table = pd.read_csv(reference / "zeus_powercap" / "power_trace_3gpus.csv")
    rows, mine = zeus_runs(table, CATALOG), (table["gpu"] == gpu).to_numpy()
    residuals = CappedRuns.of(rows.take(mine)).residuals(fit_response(rows.take(~mine)))
    errors = [100.0 * np.abs(np.expm1(-column)).mean() for column in residuals]
    assert errors[0] < power
    assert errors[1] < time


@pytest.mark.reference
def test_the_errors_without_a_fit_are_those_of_held_out_gpus_of_zeus_rounded(reference):
    table = pd.read_csv(reference / "zeus_powercap" / "power_trace_3gpus.csv")
    found, known = fit_response(zeus_runs(table, CATALOG)).errors, LimitResponse().errors
    for metric in (POWER, TIME):
        for stratum in ("depth/0", "depth/1"):
            measured = found[metric].bounds[stratum]
            assert known[metric].bounds[stratum] == pytest.approx(measured, abs=0.04)


# Power follows a limit up to the demand, clocks follow power: laws over the whole range.


RATIOS = st.lists(st.floats(0.05, 4.0), min_size=2, max_size=20).map(lambda x: np.array(sorted(x)))
HEADROOMS, ONSETS = st.floats(0.85, 1.0), st.floats(1.18, 1.9)


@given(RATIOS, HEADROOMS, ONSETS)
def test_power_never_rises_when_the_limit_falls_and_never_passes_demand(ratios, headroom, onset):
    power = followed_power(ratios, headroom, onset)
    assert (np.diff(power) >= -1e-12).all()
    assert (power <= np.minimum(1.0, headroom * ratios) + 1e-12).all()


@given(RATIOS, HEADROOMS, ONSETS)
def test_a_limit_far_above_the_demand_is_not_felt(ratios, headroom, onset):
    np.testing.assert_array_equal(followed_power(ratios + onset, headroom, onset), 1.0)


@given(st.floats(0.05, 0.84), HEADROOMS, ONSETS)
def test_the_demand_draws_what_was_drawn(power, headroom, onset):
    one = np.array([power])
    wanted = demand(one, np.ones(1), headroom, onset)
    assert wanted >= one
    drawn = wanted * followed_power(1.0 / wanted, headroom, onset)
    np.testing.assert_allclose(drawn, one, rtol=1e-6)


@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_a_clock_draws_the_power_that_it_was_given(share, linear):
    found = clock(np.array([share]), linear)[0]
    if found > SLOWEST:
        assert found * (linear + (1 - linear) * found**2) == pytest.approx(share, rel=1e-6)


def test_an_eighth_of_cubic_power_is_half_the_clock_and_twice_the_time_of_pure_compute():
    clocks = clock(np.array([0.125]), 0.0)
    assert clocks[0] == pytest.approx(0.5)
    assert stretched(clocks, 1.0)[0] == pytest.approx(2.0)
    assert stretched(clocks, 0.0)[0] == 1.0


@pytest.mark.parametrize(("headroom", "onset"), [(0.9, 1.3), (1.0, 1.2), (0.95, 1.6)])
def test_power_follows_a_low_limit_and_bends_smoothly_to_the_demand(headroom, onset):
    """Straight lines joined by a parabola: value and slope agree at both ends."""
    start = 2.0 / headroom - onset

    def power(ratio):
        return float(followed_power(np.array([ratio]), headroom, onset)[0])

    def slope(ratio):
        return (power(ratio + 1e-6) - power(ratio - 1e-6)) / 2e-6

    assert power(0.5 * start) == pytest.approx(headroom * 0.5 * start)
    assert power(start) == pytest.approx(headroom * start)
    assert slope(start + 1e-5) == pytest.approx(headroom, abs=1e-3)
    assert power(onset) == 1.0
    assert power(onset - 1e-6) == pytest.approx(1.0)
    assert slope(onset - 1e-5) == pytest.approx(0.0, abs=1e-3)
    assert power(0.5 * (start + onset)) < 1.0


def test_clocks_end_at_the_slowest():
    assert pytest.approx(0.05) == SLOWEST, "GPUs of 1.4 GHz go down to 70 MHz at least"
    assert clock(np.array([1e-9]), 1.0)[0] == SLOWEST


# A sweep of power limits is plain data: what each costs, the front, and the choices.


SWEPT_LIMITS = st.lists(st.floats(90.0, 320.0), min_size=1, max_size=15)


@cache
def predictor():
    return Router((PowerCap(calibrated=False).fit(runs(GPUS[:2], (16, 256))),))


@given(SWEPT_LIMITS, st.floats(0.0, 1.0))
def test_choices_are_the_best_of_what_was_swept(limits, slow_down):
    sweep = power_sweep(predictor(), query(V100, None), limits)
    energies = [run.energy_j.value for run in sweep.runs]
    fastest = min(run.latency_ms.value for run in sweep.runs)
    assert sweep.least_energy.energy_j.value == min(energies)
    chosen = sweep.within(slow_down)
    allowed = fastest * (1.0 + slow_down)
    assert chosen.latency_ms.value <= allowed * (1 + 1e-9)
    fitting = [r.energy_j.value for r in sweep.runs if r.latency_ms.value <= allowed]
    assert chosen.energy_j.value <= min(fitting)


@given(SWEPT_LIMITS)
def test_limits_rise_power_rises_time_falls_and_energy_is_their_product(limits):
    runs_ = power_sweep(predictor(), query(V100, None), limits).runs
    assert [run.limit_w for run in runs_] == sorted(set(limits))
    for lower, higher in pairwise(runs_):
        assert lower.power_w.value <= higher.power_w.value * (1 + 1e-12)
        assert lower.latency_ms.value >= higher.latency_ms.value * (1 - 1e-12)
    for run in runs_:
        joules = run.power_w.value * run.latency_ms.value / 1e3
        assert run.energy_j.value == pytest.approx(joules)
    assert runs_[-1].slow_down == runs_[-1].saving == 0.0


@given(SWEPT_LIMITS)
def test_nothing_on_the_front_is_beaten_and_the_rest_is(limits):
    runs_ = power_sweep(predictor(), query(V100, None), limits).runs
    pairs = [(run.latency_ms.value, run.energy_j.value) for run in runs_]
    for run, mine in zip(runs_, pairs, strict=True):
        beaten = any(a <= mine[0] and b <= mine[1] and (a, b) != mine for a, b in pairs)
        assert run.on_front is not beaten


def test_of_limits_that_cost_alike_the_highest_is_taken():
    """None of them is felt: there is no reason to set one."""
    sweep = power_sweep(predictor(), query(V100, None), [250.0, 260.0, 300.0])
    assert sweep.least_energy.limit_w == 300.0


@pytest.mark.parametrize(
    "limits", [[], [0.0], [-5.0], [math.nan], [math.inf], [1.0 + n for n in range(1001)]]
)
def test_limits_that_mean_nothing_are_refused(limits):
    with pytest.raises(InputError):
        power_sweep(predictor(), query(V100, None), limits)


def test_a_negative_slow_down_is_refused():
    sweep = power_sweep(predictor(), query(V100, None), [150.0])
    for wrong in (-0.1, math.nan):
        with pytest.raises(InputError, match="slow-down"):
            sweep.within(wrong)


def test_a_workload_without_a_power_is_refused_by_name():
    kernel = Query(Kernel(Operator("elementwise", "relu", ((8, 64),), ((8, 64),))), T4)
    with pytest.raises(UnanswerableQuery, match="No power"):
        power_sweep(Roofline(), kernel, [60.0])
