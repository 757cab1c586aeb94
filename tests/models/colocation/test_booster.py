"""Predictors of co-location on a synthetic host with a known truth."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.models.colocation.booster import (
    NEW,
    NO_WINDOW,
    PROFILED,
    UNLIKE_ALL,
    ColocationBoost,
    ProgramMean,
)
from forerun.models.colocation.features import ColocationRows
from forerun.models.colocation.slowed_class import SLOWED_BELOW, WIDEST_RATIO, ClassErrors
from forerun.models.colocation.slowing_resource import dominant, gains
from forerun.models.conformal import LogQuantiles
from forerun.models.contract import PredictorContract
from forerun.models.limit import Limit
from tests.contracts.fitted_colocation import boost, cache_query, few_trees
from tests.contracts.tiny_colocation import GUEST, METRICS, colocations, host, profile


def transfer(message):
    """The limit of a program without co-located runs, whose interval is calibrated on others."""
    return Limit(message, severity="transfer")


def test_an_unseen_program_has_a_limit_and_its_name_changes_nothing():
    answers = boost().predict(
        [cache_query(profile=replace(profile("chase"), program=name)) for name in ("one", "other")]
    )
    assert all(transfer(NEW) in lines for lines in answers.limits)
    assert answers.values["p_cpu"][0] == answers.values["p_cpu"][1]
    assert transfer(NEW) not in boost().predict([cache_query()]).limits[0]


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
    rows = colocations(measured_with_cache=True)
    cache = rows.groups["family"] == "cache"
    with few_trees():
        fitted = ColocationBoost(bags=1).fit(rows.take(~cache))
    held_out, bare = rows.take(cache), colocations().take(cache)
    measured = held_out.values["p_cpu"]
    answers, blind = fitted.predict(held_out.queries), fitted.predict(bare.queries)
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


def test_metrics_that_a_forecast_cannot_have_are_not_called_missing():
    fitted, mine = replace(boost(), training_metrics=(*METRICS, "task.cpu_share")), profile("spin")
    window = HostWindow(METRICS, (host(1.5, 0.2),))
    queries = [Query(Colocation(mine, window, coming), GUEST) for coming in (True, False)]
    before, now = fitted.predict(queries).limits
    assert not [line for line in before if "missing" in str(line)]
    assert [line for line in now if "host metrics of the training set are missing: 1" in str(line)]


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


@pytest.mark.parametrize(("count", "least", "most"), [(1, 0.05, 0.5), (30, 0.8, 0.99)])
def test_one_run_moves_a_program_less_than_half_way_and_thirty_nearly_all(count, least, most):
    rows = colocations(4)
    spin = np.flatnonzero(rows.groups["program"] == "spin")[:1]
    answers = boost().predict([rows.queries[spin[0]]] * count).values
    faster = Measurements([rows.queries[spin[0]]] * count, {m: 0.5 * v for m, v in answers.items()})
    adapted = boost().adapt(faster).predict(faster.queries).values["p_cpu"]
    moved = np.log(adapted / answers["p_cpu"]) / np.log(0.5)
    assert (least < moved).all() and (moved < most).all()


def test_an_empty_profile_is_predicted():
    query = Query(Colocation(ProgramProfile("new"), cache_query().workload.window), GUEST)
    assert 0 < boost().predict([query]).values["p_cpu"][0] < 2


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


def test_missing_metrics_are_a_limit_and_values_are_finite():
    window = cache_query().workload.window
    part = HostWindow(METRICS[:2], tuple(second[:2] for second in window.seconds))
    answers = boost().predict([cache_query(window=part), cache_query(window=HostWindow())])
    assert np.isfinite(answers.values["p_cpu"]).all()
    assert "host metrics of the training set are missing: 2" in "; ".join(
        map(str, answers.limits[0])
    )
    assert Limit(NO_WINDOW) in answers.limits[1]


def test_a_slower_reference_makes_the_relative_speed_as_much_higher():
    queries = [cache_query(), cache_query(reference_ratio=1.2), cache_query(reference_ratio=None)]
    usual, slower, unknown = boost().predict(queries).values["p_cpu"]
    assert slower == pytest.approx(1.2 * usual)
    assert unknown == usual


@pytest.fixture(autouse=True)
def small_boosters():
    """All fits of this file are of few trees."""
    with few_trees():
        yield


@pytest.mark.slow
class TestColocationBoost(PredictorContract):
    make = staticmethod(boost)
    training_rows = staticmethod(colocations)

    def queries(self):
        return colocations(1).queries[::4]


class TestProgramMean(PredictorContract):
    def make(self):
        return ProgramMean().fit(colocations(2))

    def training_rows(self):
        return colocations(2)

    def queries(self):
        return colocations(1).queries[::4]


@pytest.mark.slow
def test_with_an_unseen_neighbour_it_is_far_more_accurate_than_the_programs_own_mean():
    whole = colocations()
    rows = replace(whole, values={"p_cpu": whole.values["p_cpu"]})
    out = rows.groups["neighbour"] == "stream"
    held_out = rows.take(out)
    ours, mean = (
        np.abs(own.predict(held_out.queries).values["p_cpu"] - held_out.values["p_cpu"]).mean()
        for own in (one.fit(rows.take(~out)) for one in (ColocationBoost(bags=1), ProgramMean()))
    )
    assert ours < 0.72 * mean


def resource_gains(queries):
    """Gains by the fitted predictor."""
    return gains(boost(), queries, boost().speeds(queries))


def test_the_dominant_resource_is_what_the_truth_was_made_from():
    found = resource_gains([cache_query()])
    assert dominant(found[0]) == "cache"
    spinning = [q for q in colocations(1).queries if q.workload.profile.program == "spin"]
    assert dominant(resource_gains(spinning[1:2])[0]) == "cpu"
    assert dominant(resource_gains(spinning[:1])[0]) is None
