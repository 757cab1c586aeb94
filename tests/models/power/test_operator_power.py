"""Operator power: within the range of the board, with limit lines outside the training set."""

from functools import lru_cache

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import roofline_ms
from forerun.features.power.operator_features import waiting_w
from forerun.models.contract import PredictorContract
from forerun.models.power.operator_power import LEAST_SHARE, MOST_SHARE, OperatorPower

CATALOG = DeviceCatalog.load()
A30, TI = CATALOG.get("a30"), CATALOG.get("rtx-2080-ti")


def kernel(size: int, product: bool) -> Operator:
    if product:
        return Operator("linear", "fc", ((size, 1024),), ((size, 1024),), 1024 * 1024)
    return Operator("elementwise", "relu", ((size, 1024),), ((size, 1024),))


def measured(seed=0, n=400) -> Measurements:
    """A fifth of the design power while waiting, almost all of it in long products; 2 % noise."""
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
    def make(self):
        return fitted()

    def training_rows(self):
        return measured()

    def queries(self):
        return [
            Query(Kernel(kernel(2048, True)), A30),
            Query(Network(GRAPH, 8), TI),
            Query(Kernel(kernel(64, False)), CATALOG.get("l4")),
        ]


def test_the_fit_reproduces_its_training_rows():
    rows = measured(seed=1)
    answers = fitted().predict(rows.queries)
    errors = np.abs(answers.values["power_w"] / rows.values["power_w"] - 1)
    assert np.mean(errors) < 0.1
    truth = rows.values["power_w"]
    low, high = answers.low["power_w"], answers.high["power_w"]
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) <= 1.0


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
    errors = [
        np.mean(np.abs(a.values["power_w"] / asked.values["power_w"] - 1)) for a in (before, after)
    ]
    assert errors[1] < 0.3 * errors[0]
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
