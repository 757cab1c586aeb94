"""A power limit on any workload: less power and more time, no effect above the demand."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Kernel
from forerun.models.power.limit_response import (
    BORROWED,
    NO_POWER,
    NO_TDP,
    POWER,
    TIME,
    CappedRuns,
    LimitResponse,
    above_design_power,
    fit_response,
)
from forerun.models.prediction import Predictions
from forerun.models.router import Router
from forerun.training.protocols.power.zeus_powercap import runs as zeus_runs
from tests.contracts.power_runs import query, runs

CATALOG = DeviceCatalog.load()
A100 = CATALOG.get("a100-pcie-40gb")
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


def test_a_cool_workload_does_not_feel_the_limit():
    answer = Router((Hot(60.0),)).predict([asked(150.0)])[0]
    assert answer.estimates[POWER].value == 60.0
    assert answer.estimates[TIME].value == 2.0


def test_limits_far_below_the_measured_ones_have_no_prediction():
    answer = Router((Hot(),)).predict([asked(50.0)])[0]
    assert not answer.estimates
    assert any("20% of the design power" in str(line) for line in answer.limits)


def test_a_limit_above_the_design_power_has_no_effect_and_a_limit_line():
    answer = Router((Hot(),)).predict([asked(900.0)])[0]
    assert answer.estimates[POWER].value == 240.0
    assert answer.limits == (above_design_power(900.0, 250.0),)


def test_no_limit_makes_a_run_faster_than_it_could_be_without():
    answers = Router((Hot(),)).predict([asked(None), asked(235.0), asked(120.0)])
    assert (answers.low[TIME] >= answers.low[TIME][0]).all()


def test_a_device_without_a_design_power_keeps_its_prediction_with_a_limit_line():
    bare = A100.model_copy(update={"tdp_w": None})
    answer = Router((Hot(),)).predict([asked(150.0, bare)])[0]
    assert answer.estimates[TIME].value == 2.0
    assert answer.limits == (NO_TDP,)


def test_without_a_predicted_power_the_limit_is_ignored_with_a_limit_line():
    class TimeOnly(Hot):
        metrics = (TIME,)

        def predict(self, queries):
            return Predictions({TIME: np.full(len(queries), 2.0)})

    answer = Router((TimeOnly(),)).predict([asked(150.0)])[0]
    assert answer.estimates[TIME].value == 2.0
    assert answer.limits == (NO_POWER,)


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
