"""Training jobs under power limits: monotonicity, few-shot adaptation, intervals, limits."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.conformal import LogQuantiles
from forerun.models.contract import PredictorContract
from forerun.models.power import training_jobs as power_cap_errors
from forerun.models.power.limit_response import LimitResponse
from forerun.models.power.training_jobs import PowerCap
from forerun.models.router import Router
from tests.contracts.power_runs import CATALOG, GPUS, JOBS, job, query, runs
from tests.models.judged import errors

V100, A40 = CATALOG.get(GPUS[0]), CATALOG.get(GPUS[2])
WIDE = LogQuantiles({"all": (-0.2, 0.2), "unseen": (-0.7, 0.7), "adapted/3": (-0.1, 0.1)})


@lru_cache(maxsize=1)
def fitted() -> PowerCap:
    """Trained on V100 and P100, with intervals set by hand."""
    bare = PowerCap(calibrated=False).fit(runs(GPUS[:2]))
    return replace(bare, errors=dict.fromkeys(("power_w", "latency_ms", "energy_j"), WIDE))


@lru_cache(maxsize=1)
def adapted() -> PowerCap:
    """The same after eight rows of an A40."""
    rows = runs(GPUS[2:])
    return fitted().adapt(rows.take(np.random.default_rng(0).permutation(len(rows))[:8]))


@pytest.mark.slow
class TestPowerCapContract(PredictorContract):
    make = staticmethod(fitted)

    def queries(self):
        return [query(V100, 100.0), query(A40, 200.0, 1, 16.0), query(A40, None), query(V100, 90.0)]


@given(
    st.lists(st.floats(60.0, 320.0), min_size=2, max_size=12),
    st.floats(4.0, 2048.0),
    st.sampled_from([0, 1]),
    st.sampled_from([V100, A40]),
)
def test_power_never_rises_and_time_never_falls_when_the_limit_falls(limits, batch, place, device):
    asked = [query(device, limit, place, batch) for limit in sorted(limits)]
    for predictor in (fitted(), adapted()):
        answers = predictor.predict(asked).values
        assert (np.diff(answers["power_w"]) >= -1e-9 * answers["power_w"][1:]).all()
        assert (np.diff(answers["latency_ms"]) <= 1e-9 * answers["latency_ms"][1:]).all()
        product = answers["power_w"] * answers["latency_ms"] / 1e3
        np.testing.assert_allclose(answers["energy_j"], product)


def test_no_limit_and_one_above_the_design_power_are_the_design_power():
    answers = fitted().predict([query(V100, limit) for limit in (None, 250.0, 400.0)])
    for column in answers.values.values():
        np.testing.assert_array_equal(column, column[0])


def test_jobs_on_training_devices_are_predicted_within_a_few_percent():
    rows = runs(GPUS[:2])
    for metric in ("power_w", "latency_ms"):
        assert errors(fitted(), rows, metric).mean() < 0.03


def test_a_few_rows_of_a_new_device_make_its_other_rows_several_times_better():
    rows = runs(GPUS[2:])
    for metric in ("power_w", "latency_ms"):
        before, after = (errors(p, rows, metric).mean() for p in (fitted(), adapted()))
        assert after < 0.03
        assert after < 0.5 * before


def test_rows_of_one_device_do_not_change_predictions_for_others():
    asked = [query(V100, 150.0), query(V100, 250.0, 1)]
    before, after = fitted().predict(asked).values, adapted().predict(asked).values
    for metric, column in before.items():
        np.testing.assert_array_equal(after[metric], column)


def test_intervals_are_wide_until_the_predictor_is_adapted_to_the_device():
    asked = [query(A40, 200.0)]
    for predictor, ratio in ((fitted(), 1.4), (adapted(), 0.2)):
        answer = predictor.predict(asked)[0].estimates["power_w"]
        assert np.log(answer.high / answer.low) == pytest.approx(ratio)
    assert fitted().predict(asked)[0].limits
    assert adapted().predict(asked)[0].in_domain


def test_a_job_outside_the_training_set_has_no_prediction_and_a_limit_line():
    asked = Query(job("mnist", "lenet", 64.0), V100)
    answer = fitted().predict([asked, query(V100, None)])[0]
    assert not answer.estimates
    assert any("mnist/lenet was not measured" in str(line) for line in answer.limits)


def test_rows_of_an_unknown_job_do_not_change_the_predictor():
    rows = runs(GPUS[2:])
    strange = [Query(job("mnist", "lenet", 64.0), q.device) for q in rows.queries]
    assert fitted().adapt(replace(rows, queries=strange)).gpus == fitted().gpus


@pytest.mark.parametrize(
    ("limit", "batch", "word"),
    [(40.0, 64.0, "TDP"), (150.0, 4096.0, "batch size"), (150.0, 64.0, "")],
)
def test_limits_and_batches_outside_the_measured_range_have_limit_lines(limit, batch, word):
    lines = fitted().predict([query(V100, limit, 0, batch)])[0].limits
    assert any(word in str(line) for line in lines) if word else not lines


def test_only_tests_of_the_suite_on_a_gpu_with_a_sheet_are_answered():
    predictor = fitted()
    assert predictor.answers(query(V100, 100.0))
    assert not predictor.answers(Query(Benchmark("other", ()), V100))
    assert not predictor.answers(query(V100.model_copy(update={"tdp_w": None}), 100.0))
    assert not PowerCap().answers(query(V100, 100.0))


def test_a_row_without_a_power_still_adapts_the_time():
    rows = runs(GPUS[2:])
    blind = {"power_w": np.full(len(rows), np.nan), "latency_ms": rows.values["latency_ms"]}
    adapted = fitted().adapt(replace(rows, values=blind))
    assert errors(adapted, rows).mean() < 0.05


def test_the_fitted_response_to_limits_serves_other_workloads():
    response = fitted().response
    assert response != LimitResponse()
    assert len(response.sheets) == 2
    assert Router((fitted(),)).response == response
    assert Router(()).response == LimitResponse()


@pytest.mark.slow
def test_intervals_depend_on_how_well_the_device_is_known(monkeypatch):
    monkeypatch.setattr(power_cap_errors, "SHOTS", (4,))
    monkeypatch.setattr(power_cap_errors, "DRAWS", 1)
    monkeypatch.setattr(power_cap_errors, "FOLDS", 2)
    predictor = PowerCap().fit(runs(GPUS[:2], (16, 256)))
    assert {"all", "seen", "unseen"} <= set(predictor.errors["power_w"].bounds)
    low, high = predictor.errors["power_w"].bounds["unseen"]
    assert low <= -np.log(1.5)
    assert high >= np.log(1.5)
    assert len(JOBS) == len(predictor.jobs)
