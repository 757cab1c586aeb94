"""Answers about a processor from rows and rates that are given, without a fit."""

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.level import HALF_WIDTH
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.processors.nodes import NODE_KINDS
from forerun.features.processors.work import COLUMNS, UNITS
from forerun.models.processors.latency import ENOUGH_NETWORKS, CpuLatency
from forerun.models.processors.rates import COUNT, RatePrior

CPU = Device(name="cpu", vendor="nobody", kind="cpu")
PRIOR = RatePrior(np.concatenate([np.log(UNITS * 1e3), np.full(COUNT, -0.5)]), np.zeros(2 * COUNT))
FRESH = CpuLatency(PRIOR, measured_kinds=NODE_KINDS, factor=1.0)


def query(width=64, batch=8, threads=1):
    dense = Operator("linear", "Gemm", ((8, 1024),), ((8, width),), 1024 * width)
    relu = Operator("elementwise", "Relu", ((8, width),), ((8, width),), 0,
                    {"function": "relu"}, (0,))  # fmt: skip
    software = Software(runtime="onnxruntime", threads=threads)
    return Query(Network(OperatorGraph((dense, relu), 8), batch), CPU, software)


def adapted(queries, ms, weights=None):
    rows = Measurements(queries, {"latency_ms": np.array(ms, dtype=float)}, weights=weights)
    return FRESH.adapt(rows)


def answer(predictor, asked):
    found = predictor.predict([asked])
    return tuple(float(column["latency_ms"][0]) for column in (found.values, found.low, found.high))


def test_a_measured_run_is_the_median_of_its_measurements():
    """Interval: `HALF_WIDTH` standard deviations of 6 % between sessions."""
    value, low, high = answer(adapted([query()] * 3, [1.0, 1.02, 5.0]), query())
    assert value == pytest.approx(1.02)
    assert (low, high) == pytest.approx(
        (1.02 * np.exp(-HALF_WIDTH * 0.06), 1.02 * np.exp(HALF_WIDTH * 0.06))
    )


def test_measurements_that_scatter_widen_the_interval_from_three_on():
    """The median of the absolute deviations, in standard deviations of a normal distribution."""
    three = answer(adapted([query()] * 3, [0.8, 1.0, 1.25]), query())
    assert three[2] == pytest.approx(np.exp(HALF_WIDTH * 1.48 * np.log(1.25)))
    two = answer(adapted([query()] * 2, [0.8, 1.25]), query())
    assert two[0] == pytest.approx(1.0)
    assert two[2] == pytest.approx(np.exp(HALF_WIDTH * 0.06))


@pytest.mark.parametrize("other", [{"batch": 16}, {"threads": 2}, {"width": 65}])
def test_another_batch_number_of_threads_or_network_is_no_repetition(other):
    known = adapted([query()], [100.0])
    value, low, high = answer(known, query(**other))
    assert value != pytest.approx(100.0)
    assert high / low > np.exp(2 * HALF_WIDTH * 0.06)


def test_without_rows_rates_of_the_prior_add_up():
    """Two nodes and a run; a product of 8 x 64 x 1024."""
    value, low, high = answer(FRESH, query())
    work_ms = 2 * 8 * 64 * 1024 * 1e-10 * 1e3
    reads_ms = (8 * 1024 + 8 * 64) * 2e-10 * 1e3 + 8 * 64 * 2e-10 * 1e3
    weights_ms = 4 * 1024 * 64 * 5e-11 * 1e3
    fixed_ms = (2e-6 + 1e-6 + 5e-6) * 1e3
    assert value == pytest.approx(work_ms + reads_ms + weights_ms + fixed_ms, rel=1e-3)
    assert low < value < high
    assert low >= fixed_ms * (1 - 1e-9)


def test_threads_that_are_not_given_are_the_median_of_those_measured():
    known = adapted([query(w, threads=4) for w in (64, 65, 66)], [1.0, 1.0, 1.0])
    bare = Query(query().workload, CPU, Software(runtime="onnxruntime"))
    assert answer(known, bare)[0] == pytest.approx(1.0)


def test_few_networks_and_unknown_kinds_are_limits():
    (line,) = FRESH.predict([query()])[0].limits
    assert "0 networks were measured" in str(line)
    enough = [query(64 + n) for n in range(ENOUGH_NETWORKS)]
    assert adapted(enough, [1.0] * len(enough)).predict([query()])[0].limits == ()
    few = adapted(enough[:-1], [1.0] * (len(enough) - 1))
    assert "4 networks" in few.predict([query()])[0].limits[0].message
    lacking = CpuLatency(PRIOR, measured_kinds=tuple(k for k in NODE_KINDS if k != "gemm"))
    lines = [one.message for one in lacking.predict([query(4096)])[0].limits]
    assert sum("nodes of kind 'gemm'" in one for one in lines) == 1
    assert any("9" in one.split("latency: ")[1][:2] for one in lines), "nearly all of the time"


def test_rows_with_small_weights_are_noisier_and_doubled_rows_count_once():
    known = adapted([query(64), query(65)], [1.0, 1.0], np.array([1.0, 0.25]))
    assert known.devices["cpu"].noise.tolist() == pytest.approx([0.03, 0.06])
    again = known.adapt(Measurements([query(64)], {"latency_ms": np.array([1.0])}))
    assert len(again.devices["cpu"]) == 2


def test_without_runs_on_several_threads_arithmetic_is_taken_to_gain_most():
    """Twice the threads: 1.9 times as fast where it is arithmetic, 1.3 times where memory."""
    queries = [query(64 + n) for n in range(12)]
    bound = FRESH.predict(queries).values["latency_ms"]
    fitted = CpuLatency().fit(Measurements(queries, {"latency_ms": bound}))
    slopes = dict(zip(COLUMNS, np.exp(-fitted.prior.mean[COUNT:]).tolist(), strict=True))
    assert slopes["gemm", "flops"] == pytest.approx(1.9, abs=0.05)
    assert slopes["softmax", "values"] == pytest.approx(1.35, abs=0.05)
    assert slopes["memory", "far_bytes"] == pytest.approx(1.35, abs=0.05)
    assert slopes["fixed", "join"] < 1.0, "more threads wait longer for each other"


@pytest.mark.parametrize(
    ("count", "rank"), [(10, 10), (19, 18), (20, 19), (30, 28)]
)  # ceil((n + 1) 0.9), at most n
def test_intervals_hold_nine_of_ten_networks_with_the_finite_sample_correction(count, rank):
    """Split conformal prediction (Vovk et al.): the (n + 1) 0.9-th smallest ratio of errors."""
    random = np.random.default_rng(0)
    queries = [query(64 + n) for n in range(count)]
    bound = FRESH.predict(queries).values["latency_ms"]
    known = adapted(queries, bound * np.exp(random.normal(0, 0.5, count)))
    posterior = known._posterior(queries[0])
    errors, deviations = posterior.held_out()
    expected = max(1.0, float(np.sort(np.abs(errors) / deviations)[rank - 1]))
    fresh = query(5000)
    found = known.predict([fresh])
    mean, deviation = posterior.predict(known._rows([fresh]))
    reach = np.log(found.high["latency_ms"][0]) - mean[0]
    assert reach == pytest.approx(expected * np.hypot(deviation[0], 0.03), rel=1e-6)
