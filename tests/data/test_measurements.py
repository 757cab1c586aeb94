"""Columns and groups of measurements, also those that they lack."""

import numpy as np

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark

HOST = Device(name="host", vendor="nobody", kind="cpu")
TWO = Measurements(
    [Query(Benchmark("suite", ()), HOST)] * 2,
    {"score": np.array([1.0, np.nan])},
    {"family": np.array(["x", "x"])},
)


def test_a_metric_that_was_not_measured_is_nan_in_every_row():
    np.testing.assert_array_equal(TWO.column("score"), [1.0, np.nan])
    np.testing.assert_array_equal(TWO.column("latency_ms"), [np.nan, np.nan])


def test_without_a_key_every_row_is_a_group_of_its_own():
    assert TWO.group("family").tolist() == ["x", "x"]
    assert TWO.group("device").tolist() == ["0", "1"]


def test_a_sum_has_every_column_of_either_side():
    whole = TWO + Measurements(TWO.queries, {"area": np.array([3.0, 4.0])})
    np.testing.assert_array_equal(whole.values["score"], [1.0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(whole.values["area"], [np.nan, np.nan, 3.0, 4.0])
