"""Boosters of devices: mixing by similarity, lower bounds and power limits."""

from functools import lru_cache

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.features import (
    SHORTEST_KERNEL_MS,
    operator_features,
)
from forerun.features.operators.table import OperatorTable
from forerun.models.domain.device_novelty import device_position
from forerun.models.kernel_experts.operators import OperatorBoost
from forerun.models.operators.family_boosters import (
    expert_weights,
    family_ms,
    fit_devices,
    mixed_ratio,
)
from forerun.models.operators.training_rows import OperatorRows
from tests.models.operators.test_booster import CATALOG, GRAPH, TRAINING_GPUS, measured


@lru_cache(maxsize=1)
def rows_and_experts():
    rows = OperatorRows.of(measured(n=500))
    everything = np.ones(len(rows.device), dtype=np.bool_)
    return rows, fit_devices(rows, everything, trees=30, seeds=(1,))


def linear(device, m=4096, n=4096, k=4096):
    table = OperatorTable.of([Operator("linear", "linear", ((m, k),), ((m, n),), k * n)])
    return operator_features(table, CATALOG.get(device), "fp32", "linear")


@pytest.mark.slow
def test_boosters_of_a_device_do_not_change_with_rows_of_others():
    """The rows of a device enter its own boosters only."""
    rows, experts = rows_and_experts()
    without = fit_devices(rows, rows.device != "t4", trees=30, seeds=(1,))
    assert set(without) == set(experts) - {"t4"}
    features = linear("t4").matrix
    for name, expert in without.items():
        np.testing.assert_array_equal(
            expert.ratio("linear", features), experts[name].ratio("linear", features)
        )


def test_a_device_counts_most_for_itself_and_little_for_unlike_ones():
    _, experts = rows_and_experts()
    gpus = [device_position(CATALOG.get(name)) for name in TRAINING_GPUS]
    of_all = expert_weights(list(experts.values()), gpus, "linear")
    for place, name in enumerate(experts):
        assert of_all[list(TRAINING_GPUS).index(name), place] == of_all[:, place].max()
    positions = [device_position(CATALOG.get(name)) for name in ("a100-pcie-40gb", "p4")]
    on_a100, on_p4 = expert_weights([experts["v100-pcie-32gb"]], positions, "linear")[:, 0]
    assert on_a100 > 5 * on_p4
    assert (expert_weights(list(experts.values()), gpus, "no family") == 0.0).all()


def test_without_boosters_of_a_family_the_base_time_answers():
    features = linear("t4")
    ratio = mixed_ratio((), device_position(CATALOG.get("t4")), "linear", features)
    assert (ratio == 0.0).all()


def test_the_power_limit_holds_and_inefficiency_does_not_multiply_it():
    features = linear("t4")
    capped = features.power_ms[0]
    assert capped > 1.5 * features.base_ms[0]
    quick, slow = (family_ms("linear", features, np.array([r]))[0] for r in (0.0, 0.3))
    assert capped <= quick < 1.05 * capped
    assert slow < 1.25 * quick


def test_larger_products_take_longer_at_equal_ratio():
    for device in ("t4", "v100-pcie-32gb", "h100-sxm"):
        times = [
            float(family_ms("linear", linear(device, m=m), np.zeros(1))[0])
            for m in (64, 256, 1024, 4096, 16384)
        ]
        assert (np.diff(times) > 0).all()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "amp", "int8"])
def test_no_kernel_is_shorter_than_the_shortest(precision):
    kind = OperatorBoost(bag=1, trees=20, calibrated=False).fit(measured(n=200))
    tiny = [
        Operator("elementwise", "relu", ((1, 8),), ((1, 8),)),
        Operator("softmax", "softmax", ((1, 8),), ((1, 8),)),
        Operator("linear", "linear", ((1, 8),), ((1, 8),), 64),
        Operator("matmul", "bmm", ((1, 8, 8), (1, 8, 8)), ((1, 8, 8),)),
        Operator("conv", "conv", ((1, 3, 8, 8),), ((1, 4, 8, 8),), 108, {"kernel": 3}),
    ]
    devices = [CATALOG.get(name) for name in ("h100-sxm", "a100-pcie-40gb", "l4")]
    queries = [Query(Kernel(op, precision), device) for op in tiny for device in devices]
    assert (kind.predict(queries).values["latency_ms"] >= SHORTEST_KERNEL_MS).all()
    adapted = kind.adapt(
        measured(("h100-sxm",), n=20).take(np.arange(20))
        if precision == "fp32"
        else _fast(queries[:3])
    )
    assert (adapted.predict(queries).values["latency_ms"] >= SHORTEST_KERNEL_MS).all()


def _fast(queries):
    from forerun.data.measurements import Measurements

    return Measurements(queries, {"latency_ms": np.full(len(queries), 1e-5)})


def test_network_times_come_with_their_variances():
    kind = OperatorBoost(bag=1, trees=20).fit(measured(n=300))
    query = Query(Network(GRAPH, 256), DeviceCatalog.load().get("a100-pcie-40gb"))
    timed = kind.timed_networks([query])
    answer = kind.predict([query])
    assert timed.device_ms[0] == pytest.approx(answer.values["latency_ms"][0])
    assert timed.shared_variance[0] > 0 and timed.own_variance[0] > 0
    assert timed.by_class_ms.sum() == pytest.approx(timed.device_ms[0])
    known = kind.timed_networks([Query(Network(GRAPH, 256), CATALOG.get("t4"))])
    assert known.shared_variance[0] < timed.shared_variance[0]


def test_a_winograd_convolution_may_be_faster_than_its_bound_and_nothing_faster_than_that():
    """F(2x2, 3x3) multiplies 2.25 times less (Lavin and Gray 2016); a dense product cannot.

    The power limit, which is joined to the time at full clock, takes a little of that back.
    """
    shape = (64, 256, 56, 56)
    op = Operator("conv", "conv", (shape,), (shape,), 256 * 256 * 9, {"kernel": 3})
    device = CATALOG.get("v100-pcie-32gb")
    features = operator_features(OperatorTable.of([op]), device, "fp32", "conv")
    fast = float(family_ms("conv", features, np.array([-9.0]))[0] / features.roofline_ms[0])
    assert 1.0 / 4.0 < fast < 1.15 / 2.25
    product = linear("v100-pcie-32gb")
    assert family_ms("linear", product, np.array([-9.0]))[0] >= product.roofline_ms[0]
