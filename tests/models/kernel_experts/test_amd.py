"""Kernels on AMD GPUs: the contract, what is answered, and transfer to another GPU."""

from functools import lru_cache

import numpy as np

from forerun.data.graph import Operator
from forerun.data.language_models.kernel import GemmKernel, LlmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.contract import PredictorContract
from forerun.models.kernel_experts.amd import AmdKernels, amd_groups
from tests.devices import CATALOG

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
def fitted() -> AmdKernels:
    return AmdKernels(trees=20).fit(training_rows())


class TestAmdKernels(PredictorContract):
    def make(self):
        return AmdKernels(trees=8, calibrated=False).fit(training_rows())

    def training_rows(self):
        return training_rows()

    def queries(self):
        return [query for name in GPUS[:2] for query in queries(name, 6, seed=1)]


def error(predictor: AmdKernels, rows: Measurements) -> float:
    found = predictor.predict(rows.queries).values["latency_ms"]
    return float(np.median(np.abs(found / rows.values["latency_ms"] - 1)))


def test_a_convolution_is_transferred_to_a_gpu_without_measurements_and_says_so():
    rows = timed(queries("rx-6800-xt", 60))
    answers = fitted().predict(rows.queries)
    assert error(fitted(), rows) < 0.3
    value, low, high = (x["latency_ms"] for x in (answers.values, answers.low, answers.high))
    measured = rows.values["latency_ms"]
    assert ((low <= measured) & (measured <= high)).mean() > 0.8
    assert ((low <= value) & (value <= high)).all()
    assert all(answers.limits)


def test_a_convolution_is_left_to_others_where_one_architecture_was_measured():
    """Nothing says how far such an answer would be off."""
    alone = AmdKernels(trees=8, calibrated=False).fit(timed(queries("mi210", 300)))
    answers = alone.predict(queries("rx-6800-xt", 4))
    assert np.isnan(answers.values["latency_ms"]).all()
    assert not any(answers.limits)


def test_transferred_products_say_so():
    product = Query(LlmKernel(GemmKernel(64, 1024, 1024)), CATALOG.get("mi250x"))
    assert fitted().predict([product]).limits[0]
    assert not any(fitted().predict(queries("mi300x", 5)).limits)


def test_one_measured_gpu_gives_another_an_answer_in_a_range_of_e_each_way():
    alone = AmdKernels(trees=8).fit(timed(queries("mi210", 300)))
    (asked,) = [q for q in queries("mi300x", 3) if isinstance(q.workload, LlmKernel)]
    found = alone.predict([asked])
    value, low, high = (x["latency_ms"][0] for x in (found.values, found.low, found.high))
    assert 0.0 < np.log(high / value) <= 1.0
    assert 0.0 <= np.log(value / low) <= 1.0


def test_fifty_rows_of_a_gpu_are_enough_for_its_convolutions():
    rows = timed(queries("rx-6800-xt", 150, seed=3), 3.0)
    adapted = fitted().adapt(rows.take(np.arange(50)))
    assert error(adapted, rows.take(np.arange(50, 150))) < 0.3


def test_only_kernels_of_measured_families_on_amd_gpus_are_answered():
    op = convolution(np.random.default_rng(0))
    assert fitted().answers(Query(Kernel(op, "fp32"), CATALOG.get("mi210")))
    assert not fitted().answers(Query(Kernel(op, "fp16"), CATALOG.get("mi210")))
    for other in ("a100-pcie-40gb", "epyc-7763"):
        assert not fitted().answers(Query(Kernel(op, "fp32"), CATALOG.get(other)))
    product = Query(LlmKernel(GemmKernel(64, 1024, 1024)), CATALOG.get("mi300x"))
    assert fitted().answers(product)
    relu = Operator("elementwise", "relu", ((64, 64),), ((64, 64),))
    assert not fitted().answers(Query(Kernel(relu, "fp32"), CATALOG.get("mi210")))


def test_a_convolution_takes_its_bound_or_more_but_for_winograd():
    rows = queries("mi210", 30, seed=5)
    answers = fitted().predict(rows).values["latency_ms"]
    for group in amd_groups(rows):
        assert (answers[group.rows] >= 0.4e3 * group.table.bound_s).all()
