"""The constant baseline is a geometric mean, whatever is asked."""

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.baselines import Constant
from forerun.models.contract import PredictorContract

QUERIES = [Query(Benchmark("suite", (("n", float(n)),)), Device(name="d", vendor="v", kind="gpu"))
           for n in range(3)]  # fmt: skip


def rows(**values):
    return Measurements(QUERIES, {name: np.array(v) for name, v in values.items()})


class TestConstant(PredictorContract):
    def make(self):
        return Constant().fit(rows(latency_ms=[1.0, 2.0, 4.0]))

    def queries(self):
        return QUERIES


def test_the_mean_is_geometric_unless_a_value_is_not_positive():
    fitted = Constant().fit(rows(latency_ms=[1.0, 10.0, 100.0], change=[-1.0, 0.0, 4.0]))
    assert fitted.means == pytest.approx({"latency_ms": 10.0, "change": 1.0})
    zero = Constant().fit(rows(share=[0.0, 1.0, 5.0]))
    assert zero.means["share"] == pytest.approx(2.0)


def test_missing_values_are_left_out_and_a_metric_without_any_is_none():
    fitted = Constant().fit(rows(latency_ms=[4.0, np.nan, 9.0], power_w=[np.nan] * 3))
    assert fitted.means == pytest.approx({"latency_ms": 6.0})
    assert fitted.metrics == ("latency_ms",)
    assert fitted.answers(QUERIES[0])
    assert not Constant().answers(QUERIES[0])


def test_every_query_gets_it_and_support_rows_replace_it():
    fitted = Constant().fit(rows(latency_ms=[1.0, 10.0, 100.0]))
    assert fitted.predict(QUERIES[:2]).values["latency_ms"] == pytest.approx([10.0, 10.0])
    adapted = fitted.adapt(rows(latency_ms=[4.0, 4.0, 4.0]))
    assert adapted.predict(QUERIES[:1]).values["latency_ms"] == pytest.approx([4.0])
