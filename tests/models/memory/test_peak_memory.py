"""Peak memory as planned and as measured."""

from dataclasses import astuple, replace
from functools import cache

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.plan import CUBLAS_MIB, MemoryPlan, memory_plan
from forerun.features.memory.traits import TRAITS
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_gpu import gpu_measurements
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.contract import PredictorContract
from forerun.models.memory.fitted_peaks import (
    FEATURE_NAMES,
    FEWEST_ROWS,
    AffineMap,
    FittedPeaks,
    booster_features,
)
from forerun.models.memory.peak_memory import (
    ALLOCATED,
    CONTEXT_MIB,
    ELSEWHERE,
    PEAK,
    RESERVED,
    Memory,
)
from tests.devices import CATALOG
from tests.models.judged import inside

# Memory of inference and training: the plan, the affine map, and boosters of its residuals.


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


@cache
def fitted():
    return Memory().fit(training_rows())


class TestMemoryContract(PredictorContract):
    make = staticmethod(Memory)

    def queries(self):
        return [
            ask(),
            ask(16, "fp16"),
            ask(4, "amp", "a100-pcie-80gb"),
            ask(2, phase="training"),
        ]


@pytest.mark.slow
class TestFittedMemoryContract(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [ask(), train(2, 512, 64), train(8, 1024, 4096), train(4, 2048, 512, "l4")]


def test_it_is_weights_and_live_tensors_by_hand():
    answer = Memory().predict([ask(batch=8)])
    network_input, hidden, output = 1, 1, 1
    live = 64 * 4 + 8 * (network_input + hidden + output) * 4
    products = CUBLAS_MIB
    assert answer.values["allocated_memory_mib"][0] == pytest.approx(live + products)
    assert answer.values["peak_memory_mib"][0] == pytest.approx(live + CONTEXT_MIB)


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
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw", "adam8bit"])
def test_another_optimizer_adds_its_states_and_nothing_else(kind):
    predictor, plain = fitted(), train(8, 2048, 512)
    other = replace(plain, workload=replace(plain.workload, training=TrainingSetup(kind)))
    less, more = predictor.predict([plain, other]).values[PEAK]
    states = memory_plan(other.workload).reserved - memory_plan(plain.workload).reserved
    assert more - less == pytest.approx(predictor.training.reserved * states, rel=0.1, abs=4.0)


@pytest.mark.slow
def test_nineteen_runs_in_twenty_stay_below_the_upper_end():
    predictor, fresh = fitted(), training_rows(seed=1)
    answers = predictor.predict(fresh.queries)
    below = (fresh.values[PEAK] <= answers.high[PEAK]).mean()
    assert 0.90 <= below <= 0.99
    assert answers.coverage_of(PEAK) == 0.9


@pytest.mark.slow
def test_a_device_never_measured_says_so_until_it_is():
    predictor, query = fitted(), train(4, 1024, 512, "l4")
    assert ELSEWHERE in predictor.predict([query])[0].limits
    assert not predictor.predict([train(4, 1024, 512)])[0].limits
    measured = predictor.predict([query]).values[PEAK] - 300.0
    adapted = predictor.adapt(Measurements([query] * 3, {PEAK: np.repeat(measured, 3)}))
    assert not adapted.predict([query])[0].limits
    assert adapted.predict([query]).values[PEAK][0] == pytest.approx(measured[0], abs=150)


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


def test_weights_are_counted_once_however_often_they_are_used():
    tied = Operator("linear", "fc", ((1, 1024),), ((1, 1024),), MILLION)
    twice = (tied, replace(tied, inputs=(0,)))
    shared = OperatorGraph(twice, parameter_elements=MILLION)
    apart = OperatorGraph(twice)
    one, two = (Memory().predict([Query(Network(g), CATALOG.get("l4"))]) for g in (shared, apart))
    gained = two.values["allocated_memory_mib"] - one.values["allocated_memory_mib"]
    assert gained[0] == pytest.approx(4.0)


# The map from a plan to a device's peak: recovered exactly, robust, and right about censoring.


TRUE = AffineMap(
    reserved=1.1, largest_convolution=0.5, convolutions=0.25, library=300.0, context=700.0
)


def plan(reserved, largest=0.0, convolutions=0.0):
    traits = [0.0] * len(TRAITS)
    traits[-1] = float(convolutions > 0)
    return MemoryPlan(0.9 * reserved, reserved, {}, convolutions, largest, tuple(traits))


def plans(count=40, seed=0):
    rng = np.random.default_rng(seed)
    return [
        plan(rng.uniform(100, 9000), *(rng.uniform(10, 500, 2) if n % 2 else (0.0, 0.0)))
        for n in range(count)
    ]


def peaks(known, of=TRUE):
    return np.array([of.peak(one) for one in known])


def none(known):
    return np.full(len(known), np.nan)


def test_a_peak_by_hand():
    one = plan(1000.0, 100.0, 400.0)
    assert TRUE.workspace(one) == 0.5 * 100 + 0.25 * 400
    assert TRUE.own(one) == 700 + 300
    assert TRUE.peak(one) == 1.1 * 1000 + 150 + 1000
    assert TRUE.own(plan(1000.0)) == 700, "no library of convolutions"
    assert AffineMap(1.0, -9.0, 0.0, 0.0, 0.0).workspace(one) == 0.0


def test_exact_peaks_give_the_map_back():
    known = plans()
    found = AffineMap.fit(known, peaks(known), none(known))
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=1e-6)


def test_a_search_for_convolutions_that_a_sample_caught_moves_nothing():
    """The least absolute error leaves outliers aside, where the least square would follow them."""
    known = plans()
    measured = peaks(known)
    measured[[3, 11, 19]] += 6000.0
    found = AffineMap.fit(known, measured, none(known))
    rest = np.delete(np.arange(len(known)), [3, 11, 19])
    assert peaks(known, found)[rest] == pytest.approx(measured[rest], rel=0.01)


def test_runs_out_of_memory_count_only_where_the_fit_lies_below_them():
    known = plans()
    measured, at_least = peaks(known), none(known)
    large = [plan(20_000.0 + 10.0 * n) for n in range(60)]
    censored = np.concatenate([measured, none(large)])
    below = np.concatenate([at_least, np.full(60, 15_000.0)])
    found = AffineMap.fit(known + large, censored, below)
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=1e-6), "they needed more anyway"
    above = np.concatenate([at_least, np.full(60, 40_000.0)])
    raised = AffineMap.fit(known + large, censored, above)
    assert raised.peak(large[0]) > 1.2 * TRUE.peak(large[0])


def test_what_never_varies_is_not_told_apart_from_the_context():
    known = [plan(100.0 * n) for n in range(1, 20)]
    found = AffineMap.fit(known, peaks(known), none(known))
    assert (found.library, found.convolutions, found.largest_convolution) == (0.0, 0.0, 0.0)
    assert (found.reserved, found.context) == pytest.approx((1.1, 700.0))


# Peaks by the affine map and the boosters of its residuals, on plans made by hand.


RELU = OperatorGraph((Operator("elementwise", "relu", ((1, 8),), ((1, 8),)),))
QUERY = Query(Network(RELU, 1, "fp32", "training"), DeviceCatalog.load().get("l4"))


def planned(reserved: float, convolutions: float) -> MemoryPlan:
    """A plan without workspaces; `convolutions` is their share of the operators."""
    traits = dict.fromkeys(TRAITS, 0.5) | {"attentions": 0.0, "convolutions": convolutions}
    parts = {"weights": 100.0, "optimizer": 100.0}
    return MemoryPlan(0.5 * reserved, reserved, parts, 0.0, 0.0, tuple(traits.values()))


def test_each_kind_of_network_follows_its_own_measurements() -> None:
    """Dense networks take 1.2 times what their plan reserves, those with convolutions 1.8 times."""
    sizes = np.linspace(2000.0, 20000.0, 2 * FEWEST_ROWS)
    plans = [planned(size, share) for share in (0.0, 0.5) for size in sizes.tolist()]
    measured = np.concatenate([1.2 * sizes, 1.8 * sizes])
    unknown = np.full(len(plans), np.nan)
    fitted = FittedPeaks.of([QUERY] * len(plans), plans, measured, unknown, seed=0)
    assert set(fitted.residuals) == {"dense", "mixed"}
    off = np.abs(fitted.peaks(plans) / measured - 1.0).reshape(2, -1)
    assert (np.median(off, axis=1) < 0.01).all()


def test_boosters_that_were_fitted_on_fewer_features_read_theirs_by_name() -> None:
    plans = [planned(3000.0, 0.5), planned(9000.0, 0.25)]
    names = ("log_live", "convolutions")
    own = booster_features(plans, names)
    whole = booster_features(plans)
    assert whole.shape == (2, len(FEATURE_NAMES))
    np.testing.assert_array_equal(own[:, 0], whole[:, FEATURE_NAMES.index("log_live")])
    assert own[:, 1] == pytest.approx([0.5, 0.25])


# Training peaks measured on two GPUs that are not in the training set of the memory predictor.


@pytest.fixture(scope="module")
def measured_rows():
    bundle = Bundle.open(TorchGpu().packaged().folder, "torch_gpu")
    runs = bundle.table("runs")
    chosen = runs[(runs["phase"] == "training") & ~runs["cuda_graph"] & runs[PEAK].notna()]
    chosen = chosen.reset_index(drop=True)
    return gpu_measurements(chosen, read_graphs(bundle.table("graphs")), DeviceCatalog.load())


def test_intervals_hold_on_gpus_whose_memory_outside_the_allocator_nobody_measured(
    measured_rows,
):
    answer = bundled().predictor.predict(measured_rows.queries)
    held = inside(answer, measured_rows, PEAK)
    for device in np.unique(measured_rows.groups["device"]):
        assert held[measured_rows.groups["device"] == device].mean() >= 0.9
    assert (measured_rows.values[PEAK] <= answer.high[PEAK]).mean() >= 0.95


def test_what_the_allocator_holds_at_most_is_part_of_what_the_device_shows() -> None:
    """Also where the peak is known closely, and the slack of the allocator is not."""
    queries = [train(*size) for size in ((2, 512, 8192), (8, 2048, 262_144), (2, 2048, 1_000_000))]
    found = Memory().fit(training_rows(noise=0.002)).predict(queries)
    most = np.stack([found.high[name] for name in (ALLOCATED, RESERVED, PEAK)])
    assert (np.diff(most, axis=0) >= 0.0).all()
    assert (most[0] >= found.values[ALLOCATED]).all() and (most[1] >= found.values[RESERVED]).all()
