"""Power stays between idle and the design limit, and says where nobody measured."""

from functools import lru_cache

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.query_table import query_table
from forerun.features.roofline import roofline_ms
from forerun.models.contract import PredictorContract
from forerun.models.power import MOST_SHARE, OperatorPower

CATALOG = DeviceCatalog.load()
A30, TI = CATALOG.get("a30"), CATALOG.get("rtx-2080-ti")


def kernel(size: int, product: bool) -> Operator:
    if product:
        return Operator("linear", "fc", ((size, 1024),), ((size, 1024),), 1024 * 1024)
    return Operator("elementwise", "relu", ((size, 1024),), ((size, 1024),))


def measured(seed=0, n=400) -> Measurements:
    """Long products draw the design power, short copies a third of it, with 2 % noise."""
    random = np.random.default_rng(seed)
    queries, watts, shapes = [], [], []
    for _ in range(n):
        device = A30 if random.random() < 0.5 else TI
        size, product = int(2 ** random.uniform(4, 16)), bool(random.random() < 0.5)
        query = Query(Kernel(kernel(size, product)), device)
        busy = roofline_ms(query_table(query.workload), device, "fp32")[0]
        share = (0.95 if product else 0.55) * busy / (busy + 0.01) + 0.05
        queries.append(query)
        watts.append(device.tdp_w * share * np.exp(random.normal(0, 0.02)))
        shapes.append(f"{size}-{product}")
    names = np.array([q.device.name for q in queries])
    return Measurements(
        queries, {"power_w": np.array(watts)}, {"device": names, "op_shape": np.array(shapes)}
    )


@lru_cache(maxsize=1)
def fitted() -> OperatorPower:
    return OperatorPower(bag=1, trees=80).fit(measured())


GRAPH = OperatorGraph((kernel(4096, True), kernel(4096, False)), batch_size=8)


class TestOperatorPowerContract(PredictorContract):
    def make(self):
        return fitted()

    def queries(self):
        return [
            Query(Kernel(kernel(2048, True)), A30),
            Query(Network(GRAPH, 8), TI),
            Query(Kernel(kernel(64, False)), CATALOG.get("l4")),
        ]


def test_it_learns_what_was_measured():
    rows = measured(seed=1)
    answers = fitted().predict(rows.queries)
    errors = np.abs(answers.values["power_w"] / rows.values["power_w"] - 1)
    assert np.mean(errors) < 0.1
    truth = rows.values["power_w"]
    low, high = answers.low["power_w"], answers.high["power_w"]
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) <= 1.0


def test_a_networks_power_lies_between_its_operators():
    parts = fitted().predict([Query(Kernel(op), A30) for op in GRAPH.operators]).values["power_w"]
    whole = fitted().predict([Query(Network(GRAPH, 8), A30)]).values["power_w"][0]
    assert parts.min() <= whole <= parts.max()


def test_nobody_measured_it_means_a_wide_range_and_a_limit():
    device = CATALOG.get("h100-sxm")
    answer = fitted().predict([Query(Network(GRAPH, 8), device)])[0]
    estimate = answer.estimates["power_w"]
    assert not answer.in_domain
    assert "not measured on this device" in answer.limits[0]
    assert estimate.high / estimate.low > 3
    assert estimate.high <= MOST_SHARE * device.tdp_w + 1e-9


@pytest.mark.parametrize("name", ["tpu-v4", "epyc-7763"])
def test_it_does_not_answer_for_what_is_no_gpu(name):
    assert not fitted().answers(Query(Network(GRAPH, 8), CATALOG.get(name)))
