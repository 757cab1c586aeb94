"""The law of training jobs by hand: two parts that overlap, and a limit that slows one of them."""

import numpy as np
import pytest

from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark
from forerun.models.power.training_jobs import (
    DEVICE,
    DEVICE_JOB,
    JOB,
    LAW,
    SUITE,
    JobRows,
    answers,
    batch_of,
    device_size,
    job_of,
    log_speed,
)
from tests.devices import V100

TDP = 250.0
BASE = {
    "static": np.log(0.2), "linear": 0.0, "sharpness": np.log(40.0), "fixed": -1.0,
    "launch": np.log(100.0), "arithmetic": np.log(75.0), "dynamic": 0.0, "busy_power": 1.0,
    "compute": 0.0, "batch_power": 0.0, "overlap": np.log(2.0),
}  # fmt: skip


def rows(batch=1.0, limit=1e9, speed=1.0):
    column = [np.array([np.log(batch)]), np.array([min(limit, TDP)]), np.array([TDP])]
    return JobRows(np.array([0]), *column, np.array([np.log(speed)]))


def of(offsets=None, run=None, **changes):
    """Watts and seconds of one job, with parameters of the law or offsets of a device changed."""
    known = BASE | changes
    pooled = np.array([known[name] for name in (*LAW, *JOB)])
    shifts = np.zeros(device_size(1)) if offsets is None else offsets
    watts, seconds = answers(pooled, shifts, rows() if run is None else run)
    return float(np.exp(watts[0])), float(np.exp(seconds[0]))


def test_launches_and_arithmetic_overlap_as_sides_of_a_triangle():
    """100 s of launches and 75 s of arithmetic take 125 s; twice the batch halves the launches."""
    assert of()[1] == pytest.approx(125.0, rel=1e-3)
    assert of(run=rows(batch=2.0))[1] == pytest.approx(np.hypot(50, 75), rel=1e-3)
    assert of(run=rows(speed=3.0))[1] == pytest.approx(np.hypot(100, 25), rel=1e-3)


def test_power_is_static_and_as_much_as_the_device_is_busy():
    """A fifth of 250 W, and 60 % of it busy for 75 of 125 s."""
    assert of()[0] == pytest.approx(50 + 150 * 0.6, rel=1e-2)
    assert of(busy_power=2.0)[0] == pytest.approx(50 + 150 * 0.36, rel=1e-2)
    assert of(dynamic=np.log(0.5))[0] == pytest.approx(50 + 75 * 0.6, rel=1e-2)
    twice = of(run=rows(batch=2.0), batch_power=0.1)[0]
    assert twice == pytest.approx(50 + 150 * 75 / np.hypot(50, 75) * 2**0.1, rel=1e-2)


def test_a_limit_holds_and_slows_the_arithmetic_alone():
    free_w, free_s = of(launch=np.log(1e-3))
    watts, seconds = of(launch=np.log(1e-3), run=rows(limit=150.0))
    assert free_w == pytest.approx(200.0, rel=1e-2)
    assert watts == pytest.approx(150.0, rel=0.02)
    assert seconds > 1.1 * free_s
    waiting = of(compute=-20.0, launch=np.log(1e-3), run=rows(limit=150.0))
    assert waiting[1] == pytest.approx(free_s, rel=1e-3), "nothing of it scales with the clock"


SAME = [(name, name) for name in DEVICE if name != "headroom"]


@pytest.mark.parametrize(("offset", "parameter"), SAME)
@pytest.mark.parametrize("by", [-0.3, 0.2])
def test_an_offset_of_a_device_is_another_value_of_its_parameter(offset, parameter, by):
    shifts = np.zeros(device_size(1))
    shifts[DEVICE.index(offset)] = by
    run = rows(batch=1.5, limit=140.0)
    moved = of(run=run, **{parameter: BASE[parameter] + by})
    assert of(shifts, run) == pytest.approx(moved, rel=1e-9)
    assert of(shifts, run) != pytest.approx(of(run=run), rel=1e-9)


@pytest.mark.parametrize("name", DEVICE_JOB)
def test_so_is_an_offset_of_a_device_for_one_job(name):
    shifts = np.zeros(device_size(1))
    shifts[len(DEVICE) + DEVICE_JOB.index(name)] = -0.2
    run = rows(batch=1.5, limit=140.0)
    moved = of(run=run, **{name: BASE[name] - 0.2})
    assert of(shifts, run) == pytest.approx(moved, rel=1e-9)


def test_headroom_multiplies_the_limit():
    shifts = np.zeros(device_size(1))
    shifts[DEVICE.index("headroom")] = np.log(0.9)
    assert of(shifts, rows(limit=150.0)) == pytest.approx(of(run=rows(limit=135.0)), rel=1e-9)


def query(limit=None, **settings):
    known = {"dataset": "cifar", "network": "resnet", **settings}
    return Query(
        Benchmark(SUITE, tuple(sorted(known.items()))), V100, operation=Operation(1, limit)
    )


def test_rows_of_queries_by_hand():
    queries = [query(batch_size=64.0), query(125.0), query(900.0, network="bert")]
    found = JobRows.of(queries, ["cifar/bert", "cifar/resnet"], np.log([8.0, 32.0]))
    assert found.job.tolist() == [1, 1, 0]
    assert np.exp(found.log_batch) == pytest.approx([2.0, 1 / 32, 1 / 8])
    assert found.limit_w.tolist() == [250.0, 125.0, 250.0], "none, and one above, are the TDP"
    assert found.tdp_w.tolist() == [250.0] * 3
    speed = 0.5 * np.log(14.0 * V100.bandwidth_gbs / 100)
    assert found.log_speed == pytest.approx([speed] * 3)
    assert job_of(queries[0]) == "cifar/resnet"
    assert batch_of(queries[1]) == 1.0
    taken = found.take(np.array([False, True, False]))
    assert (taken.limit_w.tolist(), taken.job.tolist()) == ([125.0], [1])
    half = V100.model_copy(update={"peak_tflops": {"fp16": 112.0, "int8": 28.0}})
    other = Query(queries[0].workload, half)
    assert log_speed(other) == pytest.approx(0.5 * np.log(112 * V100.bandwidth_gbs / 100))
