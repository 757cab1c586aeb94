"""Errors by number of support runs: scored runs are in no support set, classes are large enough."""

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.training.reports.adapted_runs import DRAWS, LEAST, SHOTS, _cell, errors_by_shots
from tests.features.llm_serving.deployments import dense_model, expert_model
from tests.models.llm_serving.test_latency import OTHER, ask, fitted


def slower(factor: float, numbers: dict) -> Measurements:
    """Runs on a device without training rows that take `factor` times what is predicted."""
    queries = [
        ask(model, OTHER, concurrency=1.0 + 0.25 * number)
        for model, count in numbers.items()
        for number in range(count)
    ]
    before = fitted().predict(queries).values
    times = {name: factor * before[name] for name in ("tpot_ms", "ttft_ms")}
    return Measurements(queries, times)


@pytest.fixture(scope="module")
def errors():
    return errors_by_shots(fitted(), slower(1.4, {dense_model(): LEAST, expert_model(): LEAST - 1}))


def test_a_class_with_too_few_runs_takes_no_part(errors):
    for metric in ("tpot_ms", "ttft_ms"):
        assert [len(own) for own in errors[0][metric]] == [LEAST - max(SHOTS)] * DRAWS


def test_the_error_falls_with_the_size_of_the_support_set(errors):
    assert np.concatenate(errors[0]["tpot_ms"]) == pytest.approx(100.0 * (1.0 - 1.0 / 1.4))
    medians = [np.median(np.concatenate(errors[shots]["tpot_ms"])) for shots in SHOTS]
    assert medians == sorted(medians, reverse=True)
    assert medians[-1] < 0.2 * medians[0]


def test_a_cell_shows_the_largest_increase_of_any_class():
    before = [np.array([10.0, 10.0]), np.array([20.0, 20.0])]
    after = [np.array([14.0, 14.0]), np.array([5.0, 5.0])]
    assert _cell(before, before) == "15.0 %"
    assert _cell(after, before) == "9.5 % (+4.0)"
