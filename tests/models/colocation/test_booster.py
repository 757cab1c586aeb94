"""Boosters on a synthetic host with a known truth, and the baseline."""

from dataclasses import replace

import pytest

from forerun.models.colocation.booster import ColocationBoost, ProgramMean
from forerun.models.colocation.slowing_resource import dominant, gains
from forerun.models.contract import PredictorContract
from tests.contracts.fitted_colocation import boost, cache_query, few_trees
from tests.contracts.tiny_colocation import colocations
from tests.models.colocation.left_out import left_out


@pytest.fixture(autouse=True)
def small_boosters():
    """All fits of this file are of few trees."""
    with few_trees():
        yield


@pytest.mark.slow
class TestColocationBoost(PredictorContract):
    def make(self):
        return boost()

    def training_rows(self):
        return colocations()

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
    ours, mean = left_out(ColocationBoost(bags=1), "neighbour", "stream")
    assert ours < 0.72 * mean


@pytest.mark.slow
def test_p_over_one_is_a_legal_answer():
    rows = colocations(3)
    faster = replace(rows, values={m: 2.0 * v for m, v in rows.values.items()})
    answers = ColocationBoost(bags=1).fit(faster).predict(rows.queries)
    assert answers.values["p_cpu"].max() > 1.5


def resource_gains(queries):
    """Gains by the fitted predictor."""
    return gains(boost(), queries, boost().speeds(queries))


def test_the_dominant_resource_is_what_the_truth_was_made_from():
    found = resource_gains([cache_query()])
    assert dominant(found[0]) == "cache"
    spinning = [q for q in colocations(1).queries if q.workload.profile.program == "spin"]
    assert dominant(resource_gains(spinning[1:2])[0]) == "cpu"
    assert dominant(resource_gains(spinning[:1])[0]) is None
