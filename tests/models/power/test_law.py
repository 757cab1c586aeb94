"""The power law: monotonic in the load, saturating below the limit; energies add up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
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
from forerun.training.protocols.power.torch_op_energy import power_graphs

CATALOG = DeviceCatalog.load()
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
