"""`NeighbourBoost` on synthetic runs with a known truth."""

from dataclasses import replace
from functools import cache

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.colocation.application_booster import NEW, UNMEASURED, NeighbourBoost
from forerun.models.contract import PredictorContract
from forerun.models.limit import Limit
from forerun.training.protocols.colocation.cloudprophet_runs import run_measurements
from tests.contracts.tiny_cloudprophet import cloudprophet_table


@cache
def runs(count=6):
    table = cloudprophet_table(tuple(f"exp_{place}" for place in range(count)))
    table = table[table["perf_value"].notna()].reset_index(drop=True)
    return run_measurements(table, np.ones(len(table), dtype=bool))


@cache
def fitted():
    return NeighbourBoost().fit(runs())


class TestNeighbourBoost(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(runs)

    def queries(self):
        return runs().queries[:9]


def with_settings(query, **changes):
    """The same query with other settings."""
    settings = dict(query.workload.settings) | changes
    return replace(query, workload=Benchmark(query.workload.suite, tuple(sorted(settings.items()))))


def test_the_effect_of_neighbours_is_learned_where_there_is_one():
    rows = runs()
    answers = fitted().predict(rows.queries).values["p_wall"]
    median = np.median(rows.values["p_wall"])
    error = np.abs(answers - rows.values["p_wall"]).mean()
    assert error < 0.5 * np.abs(median - rows.values["p_wall"]).mean()


def test_where_neighbours_explain_nothing_the_median_stands():
    draw = np.random.default_rng(3)
    rows = runs()
    noise = np.exp(0.1 * draw.standard_normal(len(rows)))
    answers = NeighbourBoost().fit(replace(rows, values={"p_wall": noise}))
    found = answers.predict(rows.queries).values["p_wall"]
    for app in ("redis", "web_serving"):
        mine = rows.groups["application"] == app
        assert np.ptp(np.log(found[mine])) < 0.1


def test_an_unmeasured_application_is_predicted_from_all_and_has_a_limit():
    query = runs().queries[0]
    names = [with_settings(query, application=name) for name in ("one", "other")]
    answers = fitted().predict(names)
    assert answers.values["p_wall"][0] == answers.values["p_wall"][1]
    assert all(Limit(UNMEASURED) in lines for lines in answers.limits)
    assert Limit(UNMEASURED) not in fitted().predict([query]).limits[0]


def test_the_load_of_an_application_that_was_not_measured_changes_nothing():
    query = with_settings(runs().queries[0], application="never")
    answers = fitted().predict([query, with_settings(query, log_load=11.0)])
    assert answers.values["p_wall"][0] == answers.values["p_wall"][1]


def test_intervals_of_unmeasured_applications_are_as_wide_as_the_one_that_needed_most():
    bounds = fitted().widths.bounds
    assert all(
        (bounds[NEW][0] <= low and high <= bounds[NEW][1]) or name != NEW
        for name, (low, high) in bounds.items()
    )
    known, new = runs().queries[0], with_settings(runs().queries[0], application="never")
    answers = fitted().predict([known, new])
    known_ratio, new_ratio = answers.high["p_wall"] / answers.low["p_wall"]
    assert new_ratio > known_ratio


def test_only_queries_of_this_suite_are_answered():
    query = runs().queries[0]
    other = Query(Benchmark("other", query.workload.settings), query.device)
    assert fitted().answers(query)
    assert not fitted().answers(other)
    assert not NeighbourBoost().answers(query)


def test_one_run_moves_an_application_less_than_half_way_and_thirty_nearly_all():
    query = runs().queries[0]
    answer = fitted().predict([query]).values["p_wall"]
    for count, least, most in ((1, 0.05, 0.5), (30, 0.8, 0.99)):
        faster = Measurements([query] * count, {"p_wall": np.full(count, 0.5 * answer[0])})
        adapted = fitted().adapt(faster).predict([query]).values["p_wall"]
        moved = float(np.log(adapted / answer)[0] / np.log(0.5))
        assert least < moved < most
