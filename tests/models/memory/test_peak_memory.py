"""Memory of inference and training: the plan, the affine map, and boosters of its residuals."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.plan import CUBLAS_MIB, memory_plan
from forerun.models.contract import PredictorContract
from forerun.models.memory import fitted_peaks
from forerun.models.memory.peak_memory import (
    AT_LEAST,
    CONTEXT_HIGH_MIB,
    CONTEXT_LOW_MIB,
    CONTEXT_MIB,
    ELSEWHERE,
    PEAK,
    Memory,
)

CATALOG = DeviceCatalog.load()
MILLION = 2**20
GRAPH = OperatorGraph(
    (
        Operator("linear", "fc", ((1, MILLION),), ((1, MILLION),), 64 * MILLION),
        Operator("elementwise", "relu", ((1, MILLION),), ((1, MILLION),), inputs=(0,)),
    ),
    parameter_elements=64 * MILLION,
)


def ask(batch=1, precision="fp32", device="l4", phase="inference", setup=None):
    return Query(Network(GRAPH, batch, precision, phase, setup), CATALOG.get(device))


A100 = "a100-pcie-40gb"
OWN_MIB = 1700.0


def tower(layers, width):
    ops = []
    for layer in range(layers):
        inputs = (layer - 1,) if layer else ()
        shape = ((1, width),)
        ops.append(Operator("linear", "fc", shape, shape, width * width, inputs=inputs))
    return OperatorGraph(tuple(ops))


def train(layers, width, batch, device=A100):
    network = Network(tower(layers, width), batch, "fp32", "training", TrainingSetup("sgd"))
    return Query(network, CATALOG.get(device))


def training_rows(noise=0.05, seed=0):
    """Runs whose peak is 1.1 times what the plan reserves, plus the device's own, with noise."""
    draw = np.random.default_rng(seed)
    sizes = [(n, w, b) for n in (2, 4, 8) for w in (512, 1024, 2048) for b in (512, 2048, 8192)]
    runs = [train(*size) for size in sizes]
    reserved = np.tile([memory_plan(q.workload).reserved for q in runs], 6)
    queries = runs * 6
    peak = (1.1 * reserved + OWN_MIB) * np.exp(noise * draw.standard_normal(len(queries)))
    families = np.array([f"f{i % 20}" for i in range(len(queries))])
    return Measurements(queries, {PEAK: peak}, {"family": families})


@pytest.fixture
def few_trees(monkeypatch):
    """Boosters of a tenth of the trees, for tests of the affine map below them."""
    few = {kind: (trees // 10, size) for kind, (trees, size) in fitted_peaks.SIZES.items()}
    monkeypatch.setattr(fitted_peaks, "SIZES", few)


@cache
def fitted():
    return Memory().fit(training_rows())


class TestMemoryContract(PredictorContract):
    def make(self):
        return Memory()

    def queries(self):
        return [
            ask(),
            ask(16, "fp16"),
            ask(4, "amp", "a100-pcie-80gb"),
            ask(2, phase="training"),
        ]


@pytest.mark.slow
class TestFittedMemoryContract(PredictorContract):
    def make(self):
        return fitted()

    def training_rows(self):
        return training_rows()

    def queries(self):
        return [ask(), train(2, 512, 64), train(8, 1024, 4096), train(4, 2048, 512, "l4")]


def test_it_is_weights_and_live_tensors_by_hand():
    answer = Memory().predict([ask(batch=8)])
    network_input, hidden, output = 1, 1, 1
    live = 64 * 4 + 8 * (network_input + hidden + output) * 4
    products = CUBLAS_MIB
    assert answer.values["allocated_memory_mib"][0] == pytest.approx(live + products)
    assert answer.values["peak_memory_mib"][0] == pytest.approx(live + CONTEXT_MIB)


def test_half_precision_halves_and_autocast_keeps_both_copies():
    full, half, auto = (
        Memory().predict([ask(precision=p)]).values["allocated_memory_mib"][0] - CUBLAS_MIB
        for p in ("fp32", "fp16", "amp")
    )
    assert half == pytest.approx(full / 2)
    assert auto > full


def test_what_cannot_fit_says_so():
    answer = Memory().predict([ask(batch=10_000)])[0]
    assert any("the device has 24 GiB" in str(line) for line in answer.limits)
    assert answer.estimates["peak_memory_mib"].coverage is None


def test_it_answers_forward_graphs_in_either_phase():
    assert Memory().answers(ask())
    assert Memory().answers(ask(phase="training"))
    backward = replace(GRAPH, training=True)
    assert not Memory().answers(Query(Network(backward), CATALOG.get("l4")))


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_the_fit_recovers_the_affine_map():
    found = Memory().fit(training_rows(noise=0.0)).training
    assert found.reserved == pytest.approx(1.1, rel=0.01)
    assert found.context == pytest.approx(OWN_MIB, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw", "adam8bit"])
def test_another_optimizer_adds_its_states_and_nothing_else(kind):
    predictor, plain = fitted(), train(8, 2048, 512)
    other = replace(plain, workload=replace(plain.workload, training=TrainingSetup(kind)))
    less, more = predictor.predict([plain, other]).values[PEAK]
    states = memory_plan(other.workload).reserved - memory_plan(plain.workload).reserved
    assert more - less == pytest.approx(predictor.training.reserved * states, rel=0.1, abs=4.0)


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_outliers_do_not_move_the_affine_map():
    rows = training_rows(noise=0.0)
    peak = rows.values[PEAK].copy()
    peak[::10] *= 5.0
    found = Memory().fit(replace(rows, values={PEAK: peak})).training
    assert found.reserved == pytest.approx(1.1, rel=0.03)


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_a_run_out_of_memory_is_only_a_lower_bound():
    rows = training_rows(noise=0.0)
    query = train(8, 2048, 65536)
    truth = 1.1 * memory_plan(query.workload).reserved + OWN_MIB
    for bound, moved in ((0.5 * truth, False), (2.0 * truth, True)):
        out = Measurements([query] * 30, {AT_LEAST: np.full(30, bound)}, {"family": ["x"] * 30})
        answer = Memory().fit(rows + out).predict([query]).values[PEAK][0]
        assert (answer > 1.02 * truth) == moved


@pytest.mark.slow
def test_nineteen_runs_in_twenty_stay_below_the_upper_end():
    predictor, fresh = fitted(), training_rows(seed=1)
    answers = predictor.predict(fresh.queries)
    below = (fresh.values[PEAK] <= answers.high[PEAK]).mean()
    assert 0.90 <= below <= 0.99
    assert answers.coverage_of(PEAK) == 0.9


@pytest.mark.slow
def test_parts_add_up_to_the_peak():
    for query in (ask(8), train(4, 1024, 512)):
        answer = fitted().predict([query])[0]
        assert sum(answer.breakdown_mib.values()) == pytest.approx(answer.estimates[PEAK].value)
        assert answer.breakdown_mib["weights"] > 0


@pytest.mark.slow
def test_a_device_never_measured_says_so_until_it_is():
    predictor, query = fitted(), train(4, 1024, 512, "l4")
    assert ELSEWHERE in predictor.predict([query])[0].limits
    assert not predictor.predict([train(4, 1024, 512)])[0].limits
    measured = predictor.predict([query]).values[PEAK] - 300.0
    adapted = predictor.adapt(Measurements([query] * 3, {PEAK: np.repeat(measured, 3)}))
    assert not adapted.predict([query])[0].limits
    assert adapted.predict([query]).values[PEAK][0] == pytest.approx(measured[0], abs=150)


def test_measured_rows_move_the_devices_own_share():
    queries = [ask(batch=b) for b in (1, 8, 32)]
    plain = Memory().predict(queries).values["peak_memory_mib"]
    rows = Measurements(queries, {"peak_memory_mib": plain + 400.0})
    adapted = Memory().adapt(rows)
    gained = adapted.predict(queries).values["peak_memory_mib"] - plain
    assert (gained > 200).all()
    assert (gained <= 400 + 1e-6).all()
    assert adapted.adapt(Measurements(queries, {"latency_ms": np.ones(3)})) == adapted


def adapted_to(rows, gained=400.0):
    queries = [ask(batch=b + 1) for b in range(rows)]
    plain = Memory().predict(queries).values["peak_memory_mib"]
    return Memory().adapt(Measurements(queries, {"peak_memory_mib": plain + gained}))


def test_more_rows_shrink_less_and_other_devices_do_not_change():
    plain = Memory().predict([ask()]).values["peak_memory_mib"][0]
    gains = [
        adapted_to(n).predict([ask()]).values["peak_memory_mib"][0] - plain for n in (1, 2, 5, 20)
    ]
    assert gains == sorted(gains)
    assert gains[0] > 100
    assert gains[-1] == pytest.approx(400, rel=0.05)
    other = ask(device="a100-pcie-80gb")
    assert adapted_to(20).predict([other]).values == Memory().predict([other]).values


def test_a_few_rows_narrow_the_range():
    def width(predictor):
        peak = predictor.predict([ask()])[0].estimates["peak_memory_mib"]
        return peak.high - peak.low

    assert width(adapted_to(5)) < 0.6 * width(Memory())


def test_shares_survive_saving(tmp_path):
    adapted = adapted_to(5)
    adapted.save(tmp_path / "memory")
    assert Memory.load(tmp_path / "memory") == adapted


@pytest.mark.parametrize("precision", ["fp32", "fp16", "amp", "int8"])
def test_a_larger_batch_never_takes_less(precision):
    peaks = [
        Memory().predict([ask(b, precision)]).values["peak_memory_mib"][0] for b in (1, 2, 7, 64)
    ]
    assert peaks == sorted(peaks)


def test_weights_are_counted_once_however_often_they_are_used():
    tied = Operator("linear", "fc", ((1, 1024),), ((1, 1024),), MILLION)
    twice = (tied, replace(tied, inputs=(0,)))
    shared = OperatorGraph(twice, parameter_elements=MILLION)
    apart = OperatorGraph(twice)
    one, two = (Memory().predict([Query(Network(g), CATALOG.get("l4"))]) for g in (shared, apart))
    gained = two.values["allocated_memory_mib"] - one.values["allocated_memory_mib"]
    assert gained[0] == pytest.approx(4.0)


def test_the_devices_share_spans_what_training_jobs_showed(reference):
    """The least that any job took of an A100: 1,443 MiB, with nearly nothing of its own."""
    jobs = pd.read_parquet(reference / "gpumemnet" / "mlp_step2.parquet")
    least = jobs["Max GPU Memory (MiB)"].min()
    assert CONTEXT_LOW_MIB < CONTEXT_MIB < least < CONTEXT_HIGH_MIB


def test_a_context_lies_between_those_that_were_reported_and_those_of_training_jobs():
    """Geometric mean of 450 MiB (250 to 600 alone) and 1,443 MiB (GPUMemNet's smallest job)."""
    assert pytest.approx(np.sqrt(450 * 1443), rel=0.02) == CONTEXT_MIB
    peak = Memory().predict([ask()]).values[PEAK][0]
    assert peak == pytest.approx(memory_plan(ask().workload).reserved + CONTEXT_MIB)
    assert CONTEXT_LOW_MIB < 450 < CONTEXT_MIB < 1443 < CONTEXT_HIGH_MIB
