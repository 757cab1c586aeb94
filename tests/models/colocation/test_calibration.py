"""Intervals and error rates, calibrated on held-out groups of a synthetic host."""

from dataclasses import replace

import numpy as np

from forerun.data.query import Query
from forerun.models.colocation.host_forecast import put_together
from forerun.models.colocation.slowed_class import FEWEST_OF_EACH
from tests.contracts.fitted_colocation import boost
from tests.contracts.tiny_colocation import GUEST, colocations
from tests.models.judged import inside


def test_intervals_hold_nine_in_ten_of_fresh_runs():
    fresh = colocations(seed=5)
    answers = boost().predict(fresh.queries)
    assert inside(answers, fresh, "p_cpu").mean() > 0.88


def test_intervals_of_forecasts_are_calibrated_on_forecasts_of_measured_pairs():
    fitted = replace(boost(), errors={})
    assert set(fitted.ahead) == {"p_cpu", "p_wall"}
    rows = colocations(seed=1)
    pairs = rows.take(rows.groups["neighbour"] == "victim:chase")
    runs = [query.colocation for query in pairs.queries]
    neighbours, cpus = pairs.groups["neighbour"], np.full(len(pairs), np.inf)
    places, found = put_together(runs, neighbours, cpus, fitted.idle, fitted.mixing)
    assert len(places) == len(pairs)
    queries = [Query(one, GUEST) for one in found]
    answers = fitted.predict(queries)
    assert inside(answers, pairs, "p_cpu").mean() >= 0.7
    unsure = replace(fitted, ahead={"p_cpu": (-20.0, 20.0)})
    wide, sure = unsure.predict(queries), unsure.predict(pairs.queries)
    assert (wide.low["p_cpu"] < answers.low["p_cpu"]).all()
    assert (wide.high["p_cpu"] > answers.high["p_cpu"]).all()
    was = fitted.predict(pairs.queries)
    np.testing.assert_array_equal(sure.low["p_cpu"], was.low["p_cpu"])


def test_error_rates_are_measured_on_families_held_out():
    fitted = boost()
    assert {mode for _, mode in fitted.errors} >= {"known", "new"}
    for rates in fitted.errors.values():
        assert 0.0 <= rates.false_alarms <= 1.0
        assert 0.0 <= rates.misses <= 1.0
        assert rates.rows >= 2 * FEWEST_OF_EACH
