"""Operators of GPUs by class, also of AMD."""

from functools import lru_cache

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.language_models.kernel import GemmKernel, LlmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.baselines.roofline import Roofline
from forerun.models.contract import PredictorContract
from forerun.models.kernel_experts.amd import AmdKernels, amd_groups
from forerun.models.kernel_experts.operators import OperatorBoost
from tests.devices import CATALOG
from tests.models.judged import errors, inside

# Kernels and their sums: prediction on new devices, roofline bounds and reported limits.


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
    make = staticmethod(fitted)
    training_rows = staticmethod(measured)

    def queries(self):
        random = np.random.default_rng(7)
        kernels = [Query(Kernel(kernel(random)), CATALOG.get(d)) for d in ("a10", "t4", "l4")]
        return [*kernels, Query(Network(GRAPH, 256), CATALOG.get("v100-pcie-32gb"))]


def error(predictor, rows):
    return np.median(errors(predictor, rows))


def test_it_carries_over_to_a_device_it_never_saw():
    rows = measured(("a100-pcie-40gb",), seed=5)
    assert error(fitted(), rows) < min(0.3, error(Roofline(), rows))


def test_its_interval_holds_on_fresh_rows_of_a_device_it_saw():
    """Of kernels that are longer than the launch between two events, which no question has."""
    rows = measured(("v100-pcie-32gb",), seed=6)
    rows = rows.take(rows.values["latency_ms"] > 0.1)
    assert inside(fitted().predict(rows.queries), rows).mean() > 0.85


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
    assert str(limits[0]) == "precision is fp16; the training set has fp32"


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
    asked = [Query(Kernel(product, name), CATALOG.get("t4")) for name in ("fp32", "fp16")]
    found = fitted().predict(asked)
    fp32, fp16 = np.log(found.high["latency_ms"] / found.values["latency_ms"])
    assert fp32 < 0.5
    assert fp16 >= 0.6 - 1e-9


# Kernels on AMD GPUs: the contract, what is answered, and transfer to another GPU.


GPUS = ("mi210", "mi300x", "rx-6800-xt")


def convolution(rng: np.random.Generator, kind: str = "conv") -> Operator:
    n, c, k, side = (int(2 ** rng.uniform(*ends)) for ends in ((0, 6), (4, 9), (4, 9), (3, 7)))
    window = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1), "groups": 1}
    shapes = ((n, c, side, side),), ((n, k, side, side),)
    return Operator(kind, "conv", *shapes, 9 * c * k, window)


def queries(name: str, count: int, seed: int = 0) -> list[Query]:
    rng, device = np.random.default_rng(seed), CATALOG.get(name)
    found = []
    for index in range(count):
        kind = ("conv", "conv_transpose")[index % 2]
        m, n, k = (int(size) for size in 2 ** rng.uniform((0, 7, 7), (13, 13, 13)))
        product = LlmKernel(GemmKernel(m, n, k, "bf16"))
        has_matrix = "bf16" in device.peak_tflops
        own = Kernel(convolution(rng, kind), "fp32") if index % 3 or not has_matrix else product
        found.append(Query(own, device))
    return found


def timed(asked: list[Query], factor: float = 1.0) -> Measurements:
    """A launch of 5 us and twice the bound, by a factor, with 3 % noise."""
    ms = np.empty(len(asked))
    for group in amd_groups(asked):
        ms[group.rows] = (5e-6 + 2.0 * group.table.bound_s) * 1e3
    noise = np.exp(np.random.default_rng(0).normal(0, 0.03, len(asked)))
    device = np.array([query.device.name for query in asked])
    return Measurements(asked, {"latency_ms": ms * factor * noise}, {"device": device})


@lru_cache(maxsize=1)
def training_rows() -> Measurements:
    return timed([query for name in GPUS[:2] for query in queries(name, 300)])


@lru_cache(maxsize=1)
def fitted_to_amd() -> AmdKernels:
    return AmdKernels(trees=20).fit(training_rows())


class TestAmdKernels(PredictorContract):
    make = staticmethod(fitted_to_amd)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [query for name in GPUS[:2] for query in queries(name, 6, seed=1)]


def test_a_convolution_is_transferred_to_a_gpu_without_measurements_and_says_so():
    rows = timed(queries("rx-6800-xt", 60))
    answers = fitted_to_amd().predict(rows.queries)
    assert error(fitted_to_amd(), rows) < 0.3
    assert inside(answers, rows).mean() > 0.8
    assert all(answers.limits)


def test_a_convolution_is_left_to_others_where_one_architecture_was_measured():
    """Nothing says how far such an answer would be off."""
    alone = AmdKernels(trees=8, calibrated=False).fit(timed(queries("mi210", 300)))
    answers = alone.predict(queries("rx-6800-xt", 4))
    assert np.isnan(answers.values["latency_ms"]).all()
    assert not any(answers.limits)


def test_transferred_products_say_so():
    product = Query(LlmKernel(GemmKernel(64, 1024, 1024)), CATALOG.get("mi250x"))
    assert fitted_to_amd().predict([product]).limits[0]
    assert not any(fitted_to_amd().predict(queries("mi300x", 5)).limits)


def test_one_measured_gpu_gives_another_an_answer_in_a_range_of_e_each_way():
    alone = AmdKernels(trees=8).fit(timed(queries("mi210", 300)))
    (asked,) = [q for q in queries("mi300x", 3) if isinstance(q.workload, LlmKernel)]
    found = alone.predict([asked])
    value, low, high = (x["latency_ms"][0] for x in (found.values, found.low, found.high))
    assert 0.0 < np.log(high / value) <= 1.0
    assert 0.0 <= np.log(value / low) <= 1.0


def test_fifty_rows_of_a_gpu_are_enough_for_its_convolutions():
    rows = timed(queries("rx-6800-xt", 150, seed=3), 3.0)
    adapted = fitted_to_amd().adapt(rows.take(np.arange(50)))
    assert error(adapted, rows.take(np.arange(50, 150))) < 0.3


def test_only_kernels_of_measured_families_on_amd_gpus_are_answered():
    op = convolution(np.random.default_rng(0))
    assert fitted_to_amd().answers(Query(Kernel(op, "fp32"), CATALOG.get("mi210")))
    assert not fitted_to_amd().answers(Query(Kernel(op, "fp16"), CATALOG.get("mi210")))
    for other in ("a100-pcie-40gb", "epyc-7763"):
        assert not fitted_to_amd().answers(Query(Kernel(op, "fp32"), CATALOG.get(other)))
    product = Query(LlmKernel(GemmKernel(64, 1024, 1024)), CATALOG.get("mi300x"))
    assert fitted_to_amd().answers(product)
    relu = Operator("elementwise", "relu", ((64, 64),), ((64, 64),))
    assert not fitted_to_amd().answers(Query(Kernel(relu, "fp32"), CATALOG.get("mi210")))


def test_a_convolution_takes_its_bound_or_more_but_for_winograd():
    rows = queries("mi210", 30, seed=5)
    answers = fitted_to_amd().predict(rows).values["latency_ms"]
    for group in amd_groups(rows):
        assert (answers[group.rows] >= 0.4e3 * group.table.bound_s).all()
