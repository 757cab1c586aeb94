"""Networks on a synthetic host with a known truth, and what they share with boosters."""

import numpy as np
import pytest

from forerun.data.workload import HostWindow
from forerun.models.colocation.calibration import FEWEST_PAIRS, calibrated_forecasts
from forerun.models.colocation.dual_branch_network import WindowShape
from forerun.models.colocation.features import ColocationRows
from forerun.models.colocation.host_forecast import forecast_queries
from forerun.models.colocation.limits import NO_WINDOW
from forerun.models.colocation.network import ColocationNetwork
from forerun.models.contract import PredictorContract
from forerun.models.limit import Limit
from tests.contracts.fitted_colocation import boost, cache_query, network
from tests.contracts.tiny_colocation import METRICS, colocations
from tests.models.colocation.left_out import left_out


@pytest.mark.slow
class TestColocationNetwork(PredictorContract):
    def make(self):
        return network()

    def queries(self):
        return colocations(1).queries[::4]


@pytest.mark.slow
def test_so_is_the_network():
    pytest.importorskip("torch")
    shape = WindowShape(members=1, epochs=60)
    ours, mean = left_out(ColocationNetwork(shape=shape), "neighbour", "stream")
    assert ours < 0.85 * mean


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


def test_networks_are_not_trained_once_more_to_calibrate_forecasts(monkeypatch):
    """Training them takes minutes: their intervals of forecasts are those of measured windows."""
    rows, fitted = colocations(), ColocationNetwork()
    monkeypatch.setattr(ColocationNetwork, "engine", lambda *_: pytest.fail("trained"))
    inputs = ColocationRows.from_queries(rows.queries)
    neighbours, cpus = rows.groups["neighbour"], np.full(len(rows), np.inf)
    pairs, _ = forecast_queries(rows.queries, neighbours, cpus, fitted.idle)
    assert len(pairs) >= FEWEST_PAIRS, "boosters would be calibrated on them"
    assert calibrated_forecasts(fitted, inputs, rows) == ({}, {})
