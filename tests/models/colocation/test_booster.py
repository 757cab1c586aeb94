"""Co-location: boosters and the network on a synthetic host with a known truth."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import NAMES, level
from forerun.models.colocation.booster import ColocationBoost, ProgramMean
from forerun.models.colocation.calibration import FEWEST_PAIRS, calibrated_forecasts
from forerun.models.colocation.dual_branch_network import WindowShape
from forerun.models.colocation.features import (
    LOAD,
    SCATTER,
    ColocationRows,
    ProgramEffects,
)
from forerun.models.colocation.held_out_runs import uninformative_runs
from forerun.models.colocation.host_forecast import (
    Mixing,
    forecast_queries,
    granted,
    put_together,
)
from forerun.models.colocation.limits import NEW, NO_WINDOW, PROFILED, UNLIKE_ALL
from forerun.models.colocation.network import ColocationNetwork
from forerun.models.colocation.slowed_class import (
    FEWEST_OF_EACH,
    SLOWED_BELOW,
    WIDEST_RATIO,
    ClassErrors,
)
from forerun.models.colocation.slowing_resource import dominant, gains
from forerun.models.conformal import LogQuantiles
from forerun.models.contract import PredictorContract
from forerun.models.limit import Limit
from tests.contracts.tiny_colocation import GUEST, METRICS, colocations, host, profile, truth

SMALL = WindowShape(members=2, epochs=3, batch=64)


@cache
def boost():
    return ColocationBoost(bags=1).fit(colocations())


@cache
def network():
    pytest.importorskip("torch")
    rows = colocations(repeats=3)
    one = replace(rows, values={"p_cpu": rows.values["p_cpu"]})
    return ColocationNetwork(shape=SMALL).fit(one)


@pytest.mark.slow
class TestColocationBoost(PredictorContract):
    def make(self):
        return boost()

    def training_rows(self):
        return colocations()

    def queries(self):
        return colocations(1).queries[::4]


@pytest.mark.slow
class TestColocationNetwork(PredictorContract):
    def make(self):
        return network()

    def queries(self):
        return colocations(1).queries[::4]


class TestProgramMean(PredictorContract):
    def make(self):
        return ProgramMean().fit(colocations(2))

    def training_rows(self):
        return colocations(2)

    def queries(self):
        return colocations(1).queries[::4]


def left_out(predictor, key, value):
    """Mean absolute error of P on rows of a held-out group, and that of program means."""
    rows = colocations()
    out = rows.groups[key] == value
    train, judged = rows.take(~out), rows.take(out)
    fitted, mean = predictor.fit(train), ProgramMean().fit(train)
    return [
        float(np.abs(p.predict(judged.queries).values["p_cpu"] - judged.values["p_cpu"]).mean())
        for p in (fitted, mean)
    ]


@pytest.mark.slow
def test_with_an_unseen_neighbour_it_is_far_more_accurate_than_the_programs_own_mean():
    ours, mean = left_out(ColocationBoost(bags=1), "neighbour", "stream")
    assert ours < 0.72 * mean


@pytest.mark.slow
def test_so_is_the_network():
    pytest.importorskip("torch")
    shape = WindowShape(members=1, epochs=60)
    ours, mean = left_out(ColocationNetwork(shape=shape), "neighbour", "stream")
    assert ours < 0.85 * mean


def test_intervals_hold_nine_in_ten_of_fresh_runs():
    fresh = colocations(seed=5)
    answers = boost().predict(fresh.queries)
    truths = fresh.values["p_cpu"]
    inside = (answers.low["p_cpu"] <= truths) & (truths <= answers.high["p_cpu"])
    assert inside.mean() > 0.88


@pytest.mark.slow
def test_p_over_one_is_a_legal_answer():
    rows = colocations(3)
    faster = replace(rows, values={m: 2.0 * v for m, v in rows.values.items()})
    answers = ColocationBoost(bags=1).fit(faster).predict(rows.queries)
    assert answers.values["p_cpu"].max() > 1.5


def transfer(message):
    """The limit of a program without co-located runs, whose interval is calibrated on others."""
    return Limit(message, severity="transfer")


def cache_query(**changes):
    """A query about the cache program next to the cache neighbour, with some fields changed."""
    rows = colocations(1)
    place = [i for i, q in enumerate(rows.queries) if q.workload.profile.program == "chase"][2]
    return Query(replace(rows.queries[place].workload, **changes), GUEST)


def test_an_unseen_program_has_a_limit_and_its_name_changes_nothing():
    answers = boost().predict(
        [cache_query(profile=replace(profile("chase"), program=name)) for name in ("one", "other")]
    )
    assert all(transfer(NEW) in lines for lines in answers.limits)
    assert answers.values["p_cpu"][0] == answers.values["p_cpu"][1]
    assert transfer(NEW) not in boost().predict([cache_query()]).limits[0]


def test_missing_metrics_are_a_limit_and_values_are_finite():
    window = cache_query().workload.window
    part = HostWindow(METRICS[:2], tuple(second[:2] for second in window.seconds))
    for predictor in (boost(), network()):
        answers = predictor.predict([cache_query(window=part), cache_query(window=HostWindow())])
        assert np.isfinite(answers.values["p_cpu"]).all()
        assert "that training had are missing: 2" in "; ".join(map(str, answers.limits[0]))
        assert Limit(NO_WINDOW) in answers.limits[1]


def test_windows_of_any_length_are_answered_together():
    window = cache_query().workload.window
    longer = [cache_query(window=HostWindow(METRICS, window.seconds * n)) for n in (1, 7, 100)]
    for predictor in (boost(), network()):
        values = predictor.predict(longer).values["p_cpu"]
        assert np.isfinite(values).all()


def resource_gains(queries):
    """Gains by the fitted predictor."""
    return gains(boost(), queries, boost().speeds(queries))


def test_the_dominant_resource_is_what_the_truth_was_made_from():
    found = resource_gains([cache_query()])
    assert dominant(found[0]) == "cache"
    spinning = [q for q in colocations(1).queries if q.workload.profile.program == "spin"]
    assert dominant(resource_gains(spinning[1:2])[0]) == "cpu"
    assert dominant(resource_gains(spinning[:1])[0]) is None


def test_combined_profiles_come_near_what_is_measured_with_a_profiled_neighbour():
    part = boost()
    assert part.mixing.pairs > 0
    window = part.mixing.together([profile("table"), profile("chase")], part.idle, part.idle)
    query = Query(Colocation(profile("table"), window, estimated=True), GUEST)
    answer = part.predict([query])
    usual, _ = truth("table", "victim:chase", 0.65)
    assert answer.values["p_cpu"][0] == pytest.approx(usual, abs=0.15)
    assert not answer.limits[0], "a host put together within the training range is no limit"


def test_mixing_weights_are_recovered():
    draw = np.random.default_rng(0)
    added = draw.uniform(0.1, 1.0, (200, len(NAMES)))
    mixing = Mixing.fit(0.6 * added, added)
    assert all(weight == pytest.approx(0.6, abs=0.03) for weight in mixing.weights.values())
    assert Mixing().together([], HostWindow(), HostWindow()) == HostWindow()


def test_more_neighbours_never_show_less():
    mixing, idle = Mixing(), HostWindow(METRICS, ((0.1, 0.05, 20.0, 0.0),))
    one = level(mixing.together([profile("chase")], idle, idle))
    two = level(mixing.together([profile("chase"), profile("sweep")], idle, idle))
    known = ~np.isnan(one)
    assert (two[known] >= one[known] - 1e-9).all()


def test_a_program_with_few_runs_has_no_level_of_its_own():
    programs = np.array(["a"] * 2 + ["b"] * 9)
    log_p = np.r_[np.full(2, -2.0), np.linspace(-0.2, 0.0, 9)]
    effects = ProgramEffects.fit(programs, log_p, np.full((11, 2), np.nan))
    _, _, modes = effects.estimate(np.array(["a", "b", "c"]), np.full((3, 2), -1.0))
    assert modes.tolist() == ["new", "known", "new"]


def test_one_load_gives_the_effect_of_a_program_that_was_never_measured():
    programs = np.repeat(["a", "b", "c", "d"], 9)
    with_load = np.repeat([-2.0, -1.0, -0.5, -0.01], 9)
    log_p = with_load * np.tile(np.linspace(0.0, 0.8, 9), 4)
    none = np.full(36, np.nan)
    effects = ProgramEffects.fit(programs, log_p, np.stack([with_load, none], axis=1))
    proxies = np.array([[-1.5, np.nan], [0.0, np.nan], [np.nan, np.nan]])
    middle, spread, modes = effects.estimate(np.array(["x", "y", "z"]), proxies)
    assert modes.tolist() == ["profiled", "profiled", "new"]
    assert -0.75 < middle[0] < -0.35
    assert middle[1] == 0.0
    assert spread[0] > 10 * spread[1] > 0.0


def test_the_scatter_of_isolated_times_gives_the_effect_of_an_unmeasured_program():
    programs, scatter = np.repeat(["a", "b", "c", "d"], 9), np.repeat([0.4, 0.2, 0.1, 0.01], 9)
    log_p = -scatter * np.tile(np.linspace(0.0, 0.8, 9), 4)
    none = np.full(36, np.nan)
    effects = ProgramEffects.fit(programs, log_p, np.stack([none, scatter], axis=1))
    proxies = np.array([[np.nan, 0.3], [np.nan, 0.02], [np.nan, np.nan]])
    middle, spread, modes = effects.estimate(np.array(["x", "y", "z"]), proxies)
    assert modes.tolist() == ["new"] * 3
    assert -0.15 < middle[0] < -0.09
    assert spread[0] > 10 * spread[1] > 0.0
    assert (middle[2], spread[2]) == effects.common


def test_both_sensitivity_proxies_are_averaged():
    effects = ProgramEffects({}, (0.0, 0.1), {LOAD: (0.5, 0.2), SCATTER: (-1.0, 0.8)})
    middle, spread, modes = effects.estimate(np.array(["x"]), np.array([[-0.4, 0.1]]))
    assert middle[0] == pytest.approx((0.5 * -0.4 - 1.0 * 0.1) / 2)
    assert spread[0] == pytest.approx(np.sqrt(0.2 * 0.4 * 0.8 * 0.1))
    assert modes.tolist() == ["profiled"]


def test_runs_that_inputs_are_computed_from_are_left_out_of_calibration():
    rows = colocations(beside_cache=True)
    alone = rows.groups["neighbour"] == "none"
    assert alone.any()
    seen = ColocationRows.from_queries(rows.queries)
    assert not uninformative_runs(seen, rows, "known").any()
    np.testing.assert_array_equal(uninformative_runs(seen, rows, "new"), alone)
    bare = np.isnan(seen.log_p_with_load)
    np.testing.assert_array_equal(uninformative_runs(seen, rows, "profiled"), alone | bare)


def test_a_new_program_whose_times_scatter_gets_a_wider_interval():
    mine = replace(profile("chase"), program="never", cpu_spread=0.02)
    queries = [cache_query(profile=mine), cache_query(profile=replace(mine, cpu_spread=0.5))]
    fitted = replace(
        boost(),
        levels={
            m: replace(one, shares={"scatter": (-0.5, 1.0)}) for m, one in boost().levels.items()
        },
        errors={},
    )
    answers = fitted.predict(queries)
    steady, shaky = answers.high["p_cpu"] / answers.low["p_cpu"]
    assert shaky > 1.5 * steady


@pytest.mark.slow
def test_a_run_with_one_load_gives_the_sensitivity_of_a_new_program():
    rows = colocations(beside_cache=True)
    cache = rows.groups["family"] == "cache"
    fitted = ColocationBoost(bags=1).fit(rows.take(~cache))
    judged, bare = rows.take(cache), colocations().take(cache)
    measured = judged.values["p_cpu"]
    answers, blind = fitted.predict(judged.queries), fitted.predict(bare.queries)
    error, without = (np.abs(a.values["p_cpu"] - measured).mean() for a in (answers, blind))
    assert error < 0.7 * without
    assert all(
        transfer(PROFILED) in limits and transfer(NEW) not in limits for limits in answers.limits
    )
    assert all(
        transfer(NEW) in limits and transfer(PROFILED) not in limits for limits in blind.limits
    )
    known = rows.take(~cache)
    np.testing.assert_array_equal(
        fitted.predict(known.queries).values["p_cpu"],
        fitted.predict(colocations().take(~cache).queries).values["p_cpu"],
    )


def test_intervals_of_forecasts_are_calibrated_on_forecasts_of_measured_pairs():
    fitted = replace(boost(), errors={})
    assert set(fitted.ahead) == {"p_cpu", "p_wall"}
    rows = colocations(seed=1)
    pairs = rows.take(rows.groups["neighbour"] == "victim:chase")
    runs = [query.colocation for query in pairs.queries]
    neighbours, cpus = pairs.groups["neighbour"], np.full(len(pairs), np.inf)
    places, found = put_together(runs, neighbours, cpus, fitted.idle, fitted.mixing)
    assert len(places) == len(pairs)
    measured, queries = pairs.values["p_cpu"], [Query(one, GUEST) for one in found]
    answers = fitted.predict(queries)
    held = (answers.low["p_cpu"] <= measured) & (measured <= answers.high["p_cpu"])
    assert held.mean() >= 0.7
    unsure = replace(fitted, ahead={"p_cpu": (-20.0, 20.0)})
    wide, sure = unsure.predict(queries), unsure.predict(pairs.queries)
    assert (wide.low["p_cpu"] < answers.low["p_cpu"]).all()
    assert (wide.high["p_cpu"] > answers.high["p_cpu"]).all()
    was = fitted.predict(pairs.queries)
    np.testing.assert_array_equal(sure.low["p_cpu"], was.low["p_cpu"])


def test_networks_are_not_trained_once_more_to_calibrate_forecasts(monkeypatch):
    """Training them takes minutes: their intervals of forecasts are those of measured windows."""
    rows, fitted = colocations(), ColocationNetwork()
    monkeypatch.setattr(ColocationNetwork, "engine", lambda *_: pytest.fail("trained"))
    inputs = ColocationRows.from_queries(rows.queries)
    neighbours, cpus = rows.groups["neighbour"], np.full(len(rows), np.inf)
    pairs, _ = forecast_queries(rows.queries, neighbours, cpus, fitted.idle)
    assert len(pairs) >= FEWEST_PAIRS, "boosters would be calibrated on them"
    assert calibrated_forecasts(fitted, inputs, rows) == ({}, {})


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12), st.floats(0.5, 8.0))
def test_cpus_are_shared_fairly_and_none_is_left_idle_while_anybody_waits(demands, cpus):
    got = granted(demands, cpus) * np.array(demands)
    assert (got <= np.array(demands) + 1e-9).all()
    assert got.sum() == pytest.approx(min(cpus, sum(demands)))
    waiting = got < np.array(demands) - 1e-9
    if waiting.any():
        assert got[waiting].min() >= got.max() - 1e-9, "who waits has no less than anybody"


def test_metrics_that_a_forecast_cannot_have_are_not_called_missing():
    fitted, mine = replace(boost(), training_metrics=(*METRICS, "task.cpu_share")), profile("spin")
    window = HostWindow(METRICS, (host(1.5, 0.2),))
    queries = [Query(Colocation(mine, window, coming), GUEST) for coming in (True, False)]
    before, now = fitted.predict(queries).limits
    assert not [line for line in before if "missing" in str(line)]
    assert [line for line in now if "that training had are missing: 1" in str(line)]


def test_who_waits_for_a_cpu_takes_longer_by_the_wall_and_not_in_cpu_time():
    fitted, mine = boost(), profile("spin")
    window = fitted.mixing.together([mine, mine], fitted.idle, fitted.idle)
    queries = [Query(Colocation(mine, window, True, share), GUEST) for share in (1.0, 0.25)]
    answers = fitted.predict(queries)
    free, waits = answers.values["p_wall"]
    assert waits == pytest.approx(0.25 * free)
    np.testing.assert_array_equal(*np.split(answers.values["p_cpu"], 2))


def test_adaptation_changes_the_program_and_no_other():
    rows = colocations(4)
    mine = rows.take(rows.groups["program"] == "spin")
    twice = replace(mine, values={m: 2.0 * v for m, v in mine.values.items()})
    adapted = boost().adapt(twice)
    before, after = (p.predict(rows.queries).values["p_cpu"] for p in (boost(), adapted))
    spin = rows.groups["program"] == "spin"
    assert (after[spin] > 1.5 * before[spin]).all()
    np.testing.assert_array_equal(after[~spin], before[~spin])


def test_an_empty_profile_is_predicted():
    query = Query(Colocation(ProgramProfile("new"), cache_query().workload.window), GUEST)
    assert 0 < boost().predict([query]).values["p_cpu"][0] < 2


def unsure(predictor):
    """The same predictor with intervals of unseen programs that are far too wide to decide by."""
    width = LogQuantiles({"all": (-20.0, 20.0)})
    widths = {key: width if key[1] == "new" else one for key, one in predictor.widths.items()}
    errors = {(m, "new"): ClassErrors(0.25, 0.125, 40) for m in predictor.metrics}
    return replace(predictor, widths=widths, errors=errors)


def test_an_interval_too_wide_to_decide_by_is_a_class_with_its_error_rates():
    new = cache_query(profile=replace(profile("chase"), program="never"))
    queries = [new, cache_query()]
    fitted = unsure(boost())
    answers = fitted.predict(queries)
    wide, known = answers[0].estimates["p_cpu"], answers[1].estimates["p_cpu"]
    assert (wide.low, wide.high, wide.coverage) == (None, None, None)
    assert known.high <= WIDEST_RATIO * known.low
    first, second = fitted.slowed(ColocationRows.from_queries(queries), answers)["p_cpu"]
    assert first.slowed == (wide.value < SLOWED_BELOW)
    assert (first.errors.false_alarms, first.errors.misses) == (0.25, 0.125)
    assert second is None


def test_without_measured_error_rates_the_wide_interval_stands():
    new = cache_query(profile=replace(profile("chase"), program="never"))
    fitted = replace(unsure(boost()), errors={})
    answers = fitted.predict([new])
    assert answers.high["p_cpu"][0] > WIDEST_RATIO * answers.low["p_cpu"][0]
    assert fitted.slowed(ColocationRows.from_queries([new]), answers)["p_cpu"] == [None]


def test_error_rates_are_measured_on_families_held_out():
    fitted = boost()
    assert {mode for _, mode in fitted.errors} >= {"known", "new"}
    for rates in fitted.errors.values():
        assert 0.0 <= rates.false_alarms <= 1.0
        assert 0.0 <= rates.misses <= 1.0
        assert rates.rows >= 2 * FEWEST_OF_EACH


def test_error_rates_are_those_of_runs_without_an_interval_where_there_are_enough():
    measured = np.repeat([0.5, 1.0, 0.5, 1.0], 20)
    predicted = np.repeat([0.5, 1.0, 1.0, 1.0], 20)
    ratio = np.repeat([1.5, 1.5, 9.0, 9.0], 20)
    all_rows = ClassErrors.of(measured, predicted)
    assert (all_rows.false_alarms, all_rows.misses, all_rows.rows) == (0.0, 0.5, 80)
    wide = ClassErrors.where_wide(measured, predicted, ratio)
    assert (wide.false_alarms, wide.misses, wide.rows) == (0.0, 1.0, 40)
    few = np.where(np.arange(80) % 20 < 5, ratio, 1.5)
    assert ClassErrors.where_wide(measured, predicted, few) == all_rows
    assert ClassErrors.of(np.ones(50), np.ones(50)) is None


def test_a_slower_reference_makes_the_relative_speed_as_much_higher():
    for predictor in (boost(), network()):
        queries = [
            cache_query(),
            cache_query(reference_ratio=1.2),
            cache_query(reference_ratio=None),
        ]
        usual, slower, unknown = predictor.predict(queries).values["p_cpu"]
        assert slower == pytest.approx(1.2 * usual)
        assert unknown == usual


def test_a_program_that_waits_far_more_than_all_of_training_is_taken_as_not_slowed():
    mine = replace(profile("chase"), program="never", cpu_share=0.1, cpu_spread=0.5)
    fitted = boost()
    levels = {m: replace(one, shares={"scatter": (-0.5, 1.0)}) for m, one in fitted.levels.items()}
    waits = [cache_query(profile=mine), cache_query(profile=replace(mine, cpu_share=0.8))]
    answers = replace(fitted, levels=levels).predict(waits)
    assert answers.values["p_cpu"][0] == pytest.approx(1.0)
    assert answers.values["p_cpu"][1] < 0.95
    assert Limit(UNLIKE_ALL) in answers.limits[0]
    assert Limit(UNLIKE_ALL) not in answers.limits[1]


@pytest.mark.parametrize(("count", "least", "most"), [(1, 0.05, 0.5), (30, 0.8, 0.99)])
def test_one_run_moves_a_program_less_than_half_way_and_thirty_nearly_all(count, least, most):
    rows = colocations(4)
    spin = np.flatnonzero(rows.groups["program"] == "spin")[:1]
    answers = boost().predict([rows.queries[spin[0]]] * count).values
    faster = Measurements([rows.queries[spin[0]]] * count, {m: 0.5 * v for m, v in answers.items()})
    adapted = boost().adapt(faster).predict(faster.queries).values["p_cpu"]
    moved = np.log(adapted / answers["p_cpu"]) / np.log(0.5)
    assert (least < moved).all() and (moved < most).all()
