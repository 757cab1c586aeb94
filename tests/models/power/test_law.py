"""The law of power, its boosters and intervals."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import roofline_ms
from forerun.features.power.operator_features import waiting_w
from forerun.models.conformal import held_out_folds
from forerun.models.contract import PredictorContract
from forerun.models.power.law import (
    EFFECTS,
    Demand,
    PowerLaw,
    PowerRuns,
    SiliconEffect,
    limited_w,
    silicon,
    unlimited_w,
)
from forerun.models.power.operator_power import (
    LEAST_SHARE,
    MOST_SHARE,
    HeldOut,
    LawIntervals,
    MeasuredRuns,
    OperatorPower,
    calibrated,
    ends,
    held_out_runs,
    is_network,
    phase_of,
)
from forerun.training.protocols.power.torch_op_energy import power_graphs
from tests.devices import CATALOG, H100, V100
from tests.models.judged import errors, inside

# The power law: monotonic in the load, saturating below the limit; energies add up.


GPUS = [device for device in CATALOG if device.kind == "gpu" and device.tdp_w and device.has_sheet]
WITH_FP32 = [device for device in GPUS if "fp32" in device.peak_tflops]

devices = st.sampled_from(WITH_FP32)
sizes = st.integers(4, 4096)


def product(rows: int, width: int) -> Operator:
    return Operator("linear", "fc", ((rows, width),), ((rows, width),), width * width)


def pointwise(rows: int, width: int) -> Operator:
    return Operator("elementwise", "relu", ((rows, width),), ((rows, width),))


def watts(law, queries):
    runs = PowerRuns.of(queries)
    return limited_w(runs, law.demand(runs))


@pytest.mark.parametrize("phase", ["inference", "training"])
@pytest.mark.parametrize(
    "name", ["resnet50-224", "bert_base_squad-384-eager", "shufflenet_v2_x1_0-224"]
)
def test_power_of_known_networks_rises_with_the_batch(name, phase):
    graph, batches = power_graphs()[name], [2**n for n in range(10)]
    for device in ("t4", "a30", "v100-pcie-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "rtx-4090"):
        queries = [Query(Network(graph, b, "fp32", phase), CATALOG.get(device)) for b in batches]
        power = watts(PowerLaw(), queries)
        assert (power[1:] >= 0.98 * power[:-1]).all()
        assert power[-1] > power[0]


@given(devices, sizes, sizes, st.sampled_from(["inference", "training"]))
def test_power_lies_between_waiting_and_the_limit(device, rows, width, phase):
    graph = OperatorGraph((product(rows, width), pointwise(rows, width)), batch_size=rows)
    runs = PowerRuns.of([Query(Network(graph, rows, "fp32", phase), device)])
    demand = PowerLaw().demand(runs)
    assert demand.waiting_w <= limited_w(runs, demand) <= device.tdp_w


@given(st.floats(0.05, 0.9))
def test_the_limit_can_be_undone_below_it(share):
    device = CATALOG.get("a100-sxm-80gb")
    runs = PowerRuns.of([Query(Kernel(pointwise(64, 64)), device)])
    demand = Demand(np.array([60.0]), np.array([share * 340.0]))
    power = limited_w(runs, demand)
    assert unlimited_w(runs, demand, power) == pytest.approx(demand.dynamic_w, rel=1e-6)


def test_at_the_limit_a_high_demand_is_left_as_it_is():
    device = CATALOG.get("a30")
    runs = PowerRuns.of([Query(Kernel(pointwise(64, 64)), device)])
    demand = Demand(np.array([33.0]), np.array([500.0]))
    assert unlimited_w(runs, demand, np.array([165.0]))[0] == 500.0


@given(devices, st.integers(2**12, 2**15), st.integers(1, 6))
def test_energies_of_parts_add_up(device, rows, repeats):
    """Dynamic energy of a network is that of its operators, where the host does not matter."""
    operators = (*(product(rows, 2048),) * repeats, pointwise(rows, 2048))
    whole = PowerRuns.of([Query(Network(OperatorGraph(operators, batch_size=rows), rows), device)])
    parts = PowerRuns.of([Query(Kernel(op), device) for op in operators])
    law = PowerLaw()
    quick = [
        PowerRuns(runs.load, 0.0 * runs.host_s, runs.single, runs.silicon)
        for runs in (whole, parts)
    ]
    joules = [float((law.demand(runs).dynamic_w * runs.load.device_s).sum()) for runs in quick]
    assert joules[0] == pytest.approx(joules[1], rel=1e-6)


@pytest.mark.parametrize(
    "boards", [("h100-sxm-80gb", "h200-sxm-141gb"), ("a100-sxm-40gb", "a100-sxm-80gb")]
)
@given(sizes, sizes, st.sampled_from(["fp32", "fp16", "amp"]))
def test_the_same_silicon_draws_the_same_power(boards, rows, width, precision):
    graph = OperatorGraph((product(rows, width), pointwise(rows, width)), batch_size=rows)
    queries = [Query(Network(graph, rows, precision), CATALOG.get(board)) for board in boards]
    one, other = watts(PowerLaw(), queries)
    assert other == pytest.approx(one, rel=0.1)


def test_boards_with_the_same_chip_share_its_random_effects():
    chip = silicon(CATALOG.get("h100-sxm-80gb"))
    law = PowerLaw(effects=(SiliconEffect(chip, 0.0, 0.3, 0.0),))
    queries = [
        Query(Kernel(pointwise(2**14, 2048)), CATALOG.get(name))
        for name in ("h100-sxm-80gb", "h200-sxm-141gb", "h100-pcie-80gb")
    ]
    ratio = watts(law, queries) / watts(PowerLaw(), queries)
    assert ratio[0] == ratio[1] > 1.05
    assert ratio[2] == 1.0


def simulated(names, seed=0):
    """Runs whose power is the law's own, with effects of chips and 3 % of noise."""
    random = np.random.default_rng(seed)
    queries = [
        Query(Kernel(make(int(2 ** random.uniform(4, 16)), 1024)), CATALOG.get(name))
        for name in names
        for make in (product, pointwise)
        for _ in range(30)
    ]
    effects = tuple(
        SiliconEffect(
            silicon(CATALOG.get(name)), *random.normal(0, 0.5 * np.array([*EFFECTS.values()]))
        )
        for name in names
    )
    truth = PowerLaw(effects=effects)
    runs = PowerRuns.of(queries)
    return runs, limited_w(runs, truth.demand(runs)) * np.exp(random.normal(0, 0.03, len(runs)))


def test_the_fit_recovers_the_effects_of_the_chips_in_its_training_set():
    runs, power = simulated(("a30", "v100-pcie-32gb", "a40", "rtx-3090"))
    law = PowerLaw().fit(runs, power)
    error = np.abs(limited_w(runs, law.demand(runs)) / power - 1)
    assert error.mean() < 0.06
    assert np.abs(limited_w(runs, PowerLaw().demand(runs)) / power - 1).mean() > error.mean()


def test_no_board_is_found_to_wait_with_more_power_than_its_runs_draw():
    """Rows that the law cannot explain do not lift the waiting power above what was measured."""
    runs, power = simulated(("a30", "v100-pcie-32gb"))
    odd = np.where(np.arange(len(power)) % 3 == 0, 1.5, 1.0)
    least = np.minimum(power * odd, 0.9 * runs.load.tdp_w)
    idle = np.arange(len(power)) % 10 == 0
    least[idle] = 0.12 * runs.load.tdp_w[idle]
    law = PowerLaw().fit(runs, least)
    waiting = law.demand(runs).waiting_w
    assert (waiting < 1.1 * 0.12 * runs.load.tdp_w).all()


def test_an_idle_power_of_the_sheet_is_taken():
    device = CATALOG.get("a30").model_copy(update={"idle_w": 21.0})
    runs = PowerRuns.of([Query(Kernel(pointwise(4, 4)), device)])
    assert PowerLaw().demand(runs).waiting_w[0] == 21.0


def test_a_diffusion_model_fills_its_gpu():
    device = CATALOG.get("h100-sxm-80gb")
    drawing = Query(Diffusion(2e9, 1024, 1024, batch_size=16), device)
    runs = PowerRuns.of([drawing, Query(Kernel(pointwise(4, 4)), device)])
    power = limited_w(runs, PowerLaw().demand(runs))
    assert power[0] > 0.6 * device.tdp_w > power[1]
    assert list(runs.single) == [False, True]


def by_hand(device="v100-pcie-32gb", host_s=0.0, single=True, offsets=(0.0, 0.0, 0.0), **load):
    """Demand of one run by the law's priors, with figures of the load replaced."""
    runs = PowerRuns.of([Query(Kernel(pointwise(64, 64)), CATALOG.get(device))])
    products = np.eye(len(runs.load.occupied[0]))[:1]
    given = {"occupied": products, "filled": products, "arithmetic": 0.0, "memory": 0.0} | load
    columns = {name: np.atleast_1d(value) for name, value in given.items()}
    runs = replace(
        runs, load=replace(runs.load, **columns), host_s=np.array([host_s]),
        single=np.array([single]),
    )  # fmt: skip
    law = PowerLaw(effects=(SiliconEffect(runs.silicon[0], *offsets),))
    return law.demand(runs), runs


def test_a_board_waits_at_the_root_of_its_design_power():
    """50 W of 250, half as much again where the design power is 2.25 times as high."""
    assert by_hand()[0].waiting_w[0] == pytest.approx(50.0)
    assert by_hand(tdp_w=562.5)[0].waiting_w[0] == pytest.approx(75.0)
    assert by_hand(tdp_w=10.0, idle_w=9.0)[0].waiting_w[0] == 5.0, "half of it at most"
    assert by_hand(offsets=(0.5, 0.0, 0.0))[0].waiting_w[0] == pytest.approx(50 * np.exp(0.5))


def test_idle_units_draw_an_eighth_of_what_working_ones_issue():
    """Log odds of -2: a share of 0.119."""
    products = by_hand()[1].load.occupied
    half = by_hand(issue_rate=1.0, filled=0.5 * products)[0].dynamic_w[0]
    assert half == pytest.approx(50.0 * (0.5 + 0.5 / (1 + np.exp(2.0))))


@pytest.mark.parametrize(("single", "power"), [(True, 6.0), (False, 3.0)])
def test_where_the_host_takes_as_long_as_the_device_they_overlap(single, power):
    """A norm of both times: the share of the device is the root of a half."""
    device_s = by_hand()[1].load.device_s[0]
    found = by_hand(issue_rate=1.0, host_s=device_s, single=single)[0].dynamic_w[0]
    assert found == pytest.approx(50.0 * 0.5 ** (1 / power))
    slower = by_hand(
        issue_rate=1.0, host_s=device_s * np.exp(0.4), single=single, offsets=(0, 0, 0.4)
    )
    assert slower[0].dynamic_w[0] == pytest.approx(found), "effects of the host are of this ratio"


def test_a_board_at_its_limit_draws_nearly_all_of_it():
    """A30: demand at the limit is held at 2^(-1/15) of the room, 95.5 %; far above it at all."""
    _, runs = by_hand("a30")
    waiting = np.array([33.0])
    assert limited_w(runs, Demand(waiting, np.array([132.0])))[0] == pytest.approx(
        33 + 132 * 2 ** (-1 / 15)
    )
    assert limited_w(runs, Demand(waiting, np.array([40.0])))[0] == pytest.approx(73.0, abs=1e-3)
    below = unlimited_w(runs, Demand(waiting, np.array([1.0])), np.array([20.0]))
    assert below[0] == pytest.approx(0.132, rel=1e-3), "a thousandth of the room at least"


# Operator power: within the range of the board, with limit lines outside the training set.


A30, TI = CATALOG.get("a30"), CATALOG.get("rtx-2080-ti")


def kernel(size, is_product):
    return (product if is_product else pointwise)(size, 1024)


def measured(seed=0, n=400) -> Measurements:
    """A fifth of the TDP while waiting, almost all of it in long products; 2 % noise."""
    random = np.random.default_rng(seed)
    queries, watts, shapes = [], [], []
    for _ in range(n):
        device = A30 if random.random() < 0.5 else TI
        size, product = int(2 ** random.uniform(4, 16)), bool(random.random() < 0.5)
        query = Query(Kernel(kernel(size, product)), device)
        busy = roofline_ms(query_table(query.workload), device, "fp32")[0]
        share = 0.2 + (0.75 if product else 0.4) * busy / (busy + 0.01)
        queries.append(query)
        watts.append(device.tdp_w * share * np.exp(random.normal(0, 0.02)))
        shapes.append(f"{size}-{product}")
    names = np.array([q.device.name for q in queries])
    return Measurements(
        queries, {"power_w": np.array(watts)}, {"device": names, "op_shape": np.array(shapes)}
    )


@lru_cache(maxsize=1)
def fitted() -> OperatorPower:
    return OperatorPower().fit(measured())


@lru_cache(maxsize=1)
def with_networks() -> OperatorPower:
    """Fitted also on networks of both devices."""
    sizes = [2**k for k in range(6, 16)]
    graphs = [OperatorGraph((kernel(n, True), kernel(n, False)), batch_size=8) for n in sizes]
    queries = [Query(Network(graph, 8), device) for graph in graphs for device in (A30, TI)]
    watts = [0.9 * q.device.tdp_w * (0.5 + 0.05 * (n // 2)) for n, q in enumerate(queries)]
    names = {"device": np.array([q.device.name for q in queries])}
    names["op_shape"] = np.array([f"network {n // 2}" for n in range(len(queries))])
    return OperatorPower().fit(
        measured() + Measurements(queries, {"power_w": np.array(watts)}, names)
    )


GRAPH = OperatorGraph((kernel(4096, True), kernel(4096, False)), batch_size=8)


class TestOperatorPowerContract(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(measured)

    def queries(self):
        return [
            Query(Kernel(kernel(2048, True)), A30),
            Query(Network(GRAPH, 8), TI),
            Query(Kernel(kernel(64, False)), CATALOG.get("l4")),
        ]


def test_the_fit_reproduces_its_training_rows():
    rows = measured(seed=1)
    assert errors(fitted(), rows, "power_w").mean() < 0.1
    assert inside(fitted().predict(rows.queries), rows, "power_w").mean() > 0.8


LONG = OperatorGraph((kernel(2**18, True), kernel(2**18, False)), batch_size=8)


@pytest.mark.parametrize("device", ["h100-sxm-80gb", "v100-pcie-32gb", "t4"])
def test_a_networks_power_lies_between_its_operators(device):
    """On devices without boosters, where the host is not the bottleneck."""
    device = CATALOG.get(device)
    parts = fitted().predict([Query(Kernel(op), device) for op in LONG.operators]).values["power_w"]
    whole = fitted().predict([Query(Network(LONG, 8), device)]).values["power_w"][0]
    assert 0.999 * parts.min() <= whole <= 1.001 * parts.max()


def test_devices_outside_the_training_set_have_wide_intervals_and_a_limit_line():
    device = CATALOG.get("v100-pcie-32gb")
    answer = fitted().predict([Query(Network(GRAPH, 8), device)])[0]
    estimate = answer.estimates["power_w"]
    assert not answer.in_domain
    assert "not measured on this device" in str(answer.limits[0])
    assert estimate.high / estimate.low > 1.5
    assert estimate.high <= MOST_SHARE * device.tdp_w + 1e-9


def test_another_precision_or_training_is_outside_what_was_measured():
    half, train, plain = (
        with_networks().predict([Query(Network(GRAPH, 8, precision, phase), A30)])[0]
        for precision, phase in (
            ("fp16", "inference"),
            ("fp32", "training"),
            ("fp32", "inference"),
        )
    )
    assert plain.in_domain
    assert any("fp16" in str(line) for line in half.limits)
    assert tuple(map(str, train.limits)) == ("power: no network was measured in training",)


def test_operators_and_networks_are_measured_apart():
    """A device on which only operators were measured is not known for networks."""
    answer = fitted().predict([Query(Network(GRAPH, 8), A30)])[0]
    assert "networks were not measured on this device" in str(answer.limits[0])
    assert with_networks().predict([Query(Network(GRAPH, 8), A30)])[0].in_domain


def test_operator_classes_outside_the_training_set_are_named():
    softmax = Operator("softmax", "softmax", ((4096, 1024),), ((4096, 1024),))
    answer = fitted().predict([Query(Kernel(softmax), A30)])[0]
    assert tuple(map(str, answer.limits)) == ("power: no softmax operator was measured",)


def drawing(factor, rows):
    """The same rows on an L4, whose dynamic power is `factor` times what is predicted."""
    device = CATALOG.get("l4")
    queries = [Query(q.workload, device) for q in measured(seed=2, n=rows).queries]
    predicted = fitted().predict(queries).values["power_w"]
    idle = waiting_w(device)
    return Measurements(queries, {"power_w": idle + factor * (predicted - idle)})


def test_twenty_support_rows_adapt_it_to_a_new_device():
    support, asked = drawing(0.6, 20), drawing(0.6, 60)
    adapted = fitted().adapt(support)
    before, after = (p.predict(asked.queries) for p in (fitted(), adapted))
    off = [errors(p, asked, "power_w").mean() for p in (fitted(), adapted)]
    assert off[1] < 0.3 * off[0]
    assert (after.high["power_w"] < before.high["power_w"] + 1e-9).all()
    assert not any(after.limits)
    other = [Query(Kernel(kernel(512, True)), A30)]
    assert adapted.predict(other).values == fitted().predict(other).values


def test_one_training_device_gives_no_calibration_for_others():
    rows = measured()
    only = rows.take(rows.groups["device"] == "a30")
    query = Query(Kernel(kernel(4096, True)), TI)
    estimate = OperatorPower().fit(only).predict([query])[0].estimates["power_w"]
    assert estimate.low == pytest.approx(LEAST_SHARE * TI.tdp_w)
    assert estimate.high == pytest.approx(MOST_SHARE * TI.tdp_w)


@pytest.mark.parametrize("name", ["tpu-v4", "epyc-7763"])
def test_it_does_not_answer_for_what_is_no_gpu(name):
    assert not fitted().answers(Query(Network(GRAPH, 8), CATALOG.get(name)))


# Power intervals cover nine in ten runs on held-out chips and are narrow at the limit.


NAMES = ("a30", "v100-pcie-32gb", "a40", "rtx-3090", "t4", "p100-pcie-16gb")


def runs_of(names, each=40):
    shape = (4096, 1024)
    relu = Operator("elementwise", "relu", (shape,), (shape,))
    return PowerRuns.of([Query(Kernel(relu), CATALOG.get(n)) for n in names for _ in range(each)])


def drawn(random, names, between=0.2, within=0.05):
    """Runs of several chips whose dynamic part differs from chip to chip."""
    runs = runs_of(names)
    chip = np.repeat(random.normal(0, between, len(names)), len(runs) // len(names))
    demand = PowerLaw().demand(runs)
    noisy = demand.times(np.ones(len(runs)), np.exp(chip + random.normal(0, within, len(runs))))
    return runs, demand, limited_w(runs, noisy)


def test_they_cover_runs_on_new_chips():
    random = np.random.default_rng(1)
    held = []
    for _ in range(30):
        parts = []
        for name in NAMES:
            runs, demand, watts = drawn(random, (name,))
            parts.append(HeldOut(runs, demand, watts, "unseen"))
        runs, demand, watts = drawn(random, ("a10g",))
        low, high = calibrated(parts).ends(runs, demand, ["unseen"] * len(runs))
        held.append(np.mean((low <= watts) & (watts <= high)))
    assert 0.82 < np.mean(held) <= 1.0


def test_fewer_chips_make_them_wider():
    random = np.random.default_rng(2)
    one = drawn(random, NAMES[:1])
    parts = [HeldOut(*one, "unseen")] * 6
    two, six = (calibrated(parts[:n]) for n in (2, 6))
    assert two.reach["unseen"] > six.reach["unseen"]


def test_intervals_are_narrow_where_demand_is_far_above_the_limit():
    runs = runs_of(("a30",), each=2)
    demand = Demand(np.array([33.0, 33.0]), np.array([1000.0, 60.0]))
    low, high = ends(runs, demand, ["unseen"] * 2, np.full(2, 1.5))
    assert high[0] / low[0] < 1.1
    assert high[1] / low[1] > 1.5
    assert (high <= MOST_SHARE * 165.0).all()


def test_deviations_are_the_least_that_hold_a_run():
    runs, demand, watts = drawn(np.random.default_rng(3), ("v100-pcie-32gb",))
    held = HeldOut(runs, demand, watts, "unseen")
    reach = held.deviations()
    known = ["unseen"] * len(runs)
    low, high = ends(runs, demand, known, reach * 1.001 + 1e-6)
    assert ((low <= watts) & (watts <= high)).all()
    low, high = ends(runs, demand, known, reach * 0.98)
    assert not ((low <= watts) & (watts <= high)).any()


def test_without_a_second_chip_the_interval_covers_the_whole_range():
    runs = runs_of(("a30",))
    chips = held_out_folds(runs.chips)
    assert list(held_out_runs(runs, np.full(len(runs), 100.0), chips, "unseen")) == []
    low, high = LawIntervals().ends(runs, PowerLaw().demand(runs), ["unseen"] * len(runs))
    assert low == pytest.approx(0.15 * 165.0)
    assert high == pytest.approx(MOST_SHARE * 165.0)


@pytest.mark.parametrize(("waiting_w", "dynamic_w"), [(33.0, 0.0), (0.0, 90.0), (33.0, 60.0)])
def test_the_better_a_device_is_known_the_narrower_is_an_interval_of_equal_reach(
    waiting_w, dynamic_w
):
    runs = runs_of(("a30",), each=3)
    demand = Demand(np.full(3, waiting_w), np.full(3, dynamic_w))
    low, high = ends(runs, demand, ["seen", "adapted", "unseen"], np.ones(3))
    width = high - low
    assert 0 < width[0] < width[1] <= width[2]


# Runs whose power is asked: which boards carry the same chip.


def test_boards_that_differ_in_memory_and_power_limit_carry_one_chip() -> None:
    board = CATALOG.get("a100-sxm-80gb")
    assert silicon(board.model_copy(update={"memory_gib": 40.0, "tdp_w": 300.0})) == silicon(board)


@pytest.mark.parametrize("field", ["compute_units", "boost_clock_mhz"])
def test_more_units_or_a_faster_clock_are_another_chip(field: str) -> None:
    board = CATALOG.get("a100-sxm-80gb")
    assert silicon(board.model_copy(update={field: 2 * getattr(board, field)})) != silicon(board)


def test_the_key_holds_the_fp32_peak_and_without_one_the_highest() -> None:
    board = CATALOG.get("a100-sxm-80gb")
    assert silicon(board)[2] == pytest.approx(np.log(board.peak_tflops["fp32"]), abs=1e-6)
    others = {name: peak for name, peak in board.peak_tflops.items() if name != "fp32"}
    key = silicon(board.model_copy(update={"peak_tflops": others}))
    assert key[2] == pytest.approx(np.log(max(others.values())), abs=1e-6)


# The domain of a training set of power: devices, precisions, phases and classes.


RELU = Operator("elementwise", "relu", ((8, 64),), ((8, 64),))
NETWORK = Network(OperatorGraph((RELU, RELU), batch_size=8), 8, "tf32", "training")
QUERIES = (
    Query(Kernel(RELU), A30),
    Query(NETWORK, A30),
    Query(Network(OperatorGraph((RELU,), batch_size=8), 8, "fp32", "training"), V100),
    Query(Diffusion(2e9, 1024, 1024), H100),
)


def test_devices_are_known_by_what_ran_on_them():
    measured = MeasuredRuns.of(QUERIES)
    assert all(device in measured.devices for device in (A30, V100, H100))
    assert A30 in measured.operators
    assert A30 in measured.networks
    assert V100 not in measured.networks, "one operator with its backward pass is no network"
    assert H100 not in measured.operators
    assert (measured.precisions, measured.phases) == (("fp32", "tf32"), ("training",))
    assert measured.classes == ("elementwise",)


def test_a_network_has_several_operators_and_a_phase():
    assert [is_network(query) for query in QUERIES] == [False, True, False, False]
    assert phase_of(QUERIES[1]) == "training"
