"""Kernels and their sums: prediction on new devices, roofline bounds and reported limits."""

from functools import lru_cache

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.baselines.roofline import Roofline
from forerun.models.contract import PredictorContract
from forerun.models.kernel_experts.operators import OperatorBoost
from tests.devices import CATALOG

TRAINING_GPUS = ("p100-pcie-16gb", "v100-pcie-32gb", "t4")


def kernel(random: np.random.Generator) -> Operator:
    m, n, k = (int(2 ** random.uniform(8, 12)) for _ in range(3))
    return random.choice(
        [
            Operator("linear", "linear", ((m, k),), ((m, n),), k * n),
            Operator("matmul", "bmm", ((8, m, k), (8, k, n)), ((8, m, n),)),
            Operator("elementwise", "relu", ((8 * m, n),), ((8 * m, n),)),
            Operator("softmax", "softmax", ((8 * m, n),), ((8 * m, n),)),
            Operator("layer_norm", "ln", ((8 * m, n),), ((8 * m, n),), 2 * n, {"width": n}),
        ]
    )


def measured(names=TRAINING_GPUS, n=900, slowdown=1.6, seed=0) -> Measurements:
    """Kernels that take `slowdown` times their roofline, plus a launch and 3 % noise."""
    random = np.random.default_rng(seed)
    queries = [Query(Kernel(kernel(random)), CATALOG.get(name)) for name in names for _ in range(n)]
    bound = Roofline().predict(queries).values["latency_ms"]
    noise = np.exp(random.normal(0, 0.03, len(queries)))
    return Measurements(
        queries,
        {"latency_ms": bound * slowdown * noise + 0.018},
        {"device": np.array([q.device.name for q in queries])},
    )


@lru_cache(maxsize=1)
def fitted() -> OperatorBoost:
    return OperatorBoost(trees=60).fit(measured())


GRAPH = OperatorGraph(
    (
        Operator("linear", "fc", ((64, 1024),), ((64, 4096),), 4096 * 1024),
        Operator("elementwise", "relu", ((64, 4096),), ((64, 4096),), inputs=(0,)),
        Operator("unknown", "mystery", ((64, 4096),), ((64, 4096),), inputs=(1,)),
    ),
    batch_size=64,
)


class TestOperatorBoostContract(PredictorContract):
    def make(self):
        return fitted()

    def training_rows(self):
        return measured()

    def queries(self):
        random = np.random.default_rng(7)
        kernels = [Query(Kernel(kernel(random)), CATALOG.get(d)) for d in ("a10", "t4", "l4")]
        return [*kernels, Query(Network(GRAPH, 256), CATALOG.get("v100-pcie-32gb"))]


def test_it_carries_over_to_a_device_it_never_saw():
    rows = measured(("a100-pcie-40gb",), seed=5)
    answers = fitted().predict(rows.queries)
    error = np.abs(answers.values["latency_ms"] / rows.values["latency_ms"] - 1)
    bound = Roofline().predict(rows.queries).values["latency_ms"]
    assert np.median(error) < 0.3
    assert np.median(error) < np.median(np.abs(bound / rows.values["latency_ms"] - 1))


def test_its_interval_holds_on_fresh_rows_of_a_device_it_saw():
    """Of kernels that are longer than the launch between two events, which no question has."""
    rows = measured(("v100-pcie-32gb",), seed=6)
    rows = rows.take(rows.values["latency_ms"] > 0.1)
    answers = fitted().predict(rows.queries)
    truth = rows.values["latency_ms"]
    low, high = answers.low["latency_ms"], answers.high["latency_ms"]
    assert np.mean((low <= truth) & (truth <= high)) > 0.85


def test_no_kernel_beats_its_bound():
    rows = measured(("h100-sxm", "l4"), n=200, seed=8)
    bound = Roofline().predict(rows.queries).values["latency_ms"]
    assert (fitted().predict(rows.queries).values["latency_ms"] >= bound * (1 - 1e-9)).all()


def test_a_network_is_the_sum_of_its_operators():
    device = CATALOG.get("t4")
    graph = OperatorGraph(GRAPH.operators[:2], batch_size=64)
    whole = fitted().predict([Query(Network(graph, 64), device)])
    parts = fitted().predict([Query(Kernel(op), device) for op in graph.operators])
    assert whole.values["latency_ms"][0] == pytest.approx(parts.values["latency_ms"].sum())
    assert sum(whole[0].breakdown_ms.values()) == pytest.approx(whole.values["latency_ms"][0])


def test_rows_with_a_low_weight_are_left_out():
    good, bad = measured(n=300), measured(n=300, slowdown=20.0, seed=1)
    both = Measurements(
        [*good.queries, *bad.queries],
        {"latency_ms": np.concatenate([good.values["latency_ms"], bad.values["latency_ms"]])},
        {"device": np.concatenate([good.groups["device"], bad.groups["device"]])},
        np.concatenate([np.ones(len(good)), np.full(len(bad), 0.2)]),
    )
    kind = OperatorBoost(trees=20, calibrated=False)
    np.testing.assert_allclose(
        kind.fit(both).predict(good.queries[:50]).values["latency_ms"],
        kind.fit(good).predict(good.queries[:50]).values["latency_ms"],
    )


def test_a_precision_that_nobody_measured_is_a_limit():
    random = np.random.default_rng(3)
    query = Query(Kernel(kernel(random), "fp16"), CATALOG.get("t4"))
    (limits,) = fitted().predict([query]).limits
    assert str(limits[0]) == "precision is fp16, the training set has fp32"


def test_a_kind_of_operator_that_nobody_measured_is_a_limit():
    relu, pool = (
        Operator(kind, kind, ((64, 64, 56, 56),), ((64, 64, 56, 56),))
        for kind in ("elementwise", "pool")
    )
    queries = [Query(Kernel(op), CATALOG.get("t4")) for op in (relu, pool)]
    limits = [[str(limit) for limit in own] for own in fitted().predict(queries).limits]
    assert [any("no pool operator" in line for line in own) for own in limits] == [False, True]


def test_a_few_measurements_move_a_device_towards_them():
    rows = measured(("a10",), n=120, slowdown=4.0, seed=9)
    before = fitted().predict(rows.queries).values["latency_ms"]
    adapted = fitted().adapt(rows.take(np.arange(20)))
    after = adapted.predict(rows.queries).values["latency_ms"]
    truth = rows.values["latency_ms"]
    assert np.median(np.abs(np.log(after / truth))) < 0.5 * np.median(
        np.abs(np.log(before / truth))
    )


def test_what_was_not_trained_on_has_a_wide_interval() -> None:
    """In fp16 on a measured GPU, where the same product in fp32 has a narrow one."""
    product = Operator("linear", "linear", ((4096, 4096),), ((4096, 4096),), 4096**2)
    fitted = OperatorBoost(trees=20).fit(measured())
    asked = [Query(Kernel(product, name), CATALOG.get("t4")) for name in ("fp32", "fp16")]
    found = fitted.predict(asked)
    fp32, fp16 = np.log(found.high["latency_ms"] / found.values["latency_ms"])
    assert fp32 < 0.5
    assert fp16 >= 0.6 - 1e-9
