"""Baselines."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark, Kernel, Network
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.contract import PredictorContract

# The roofline predictor: the contract, and monotonicity in the hardware.


LINEAR = Operator("linear", "linear", ((512, 1024),), ((512, 4096),), 1024 * 4096)
RELU = Operator("elementwise", "relu", ((512, 4096),), ((512, 4096),), inputs=(0,))


def queries(names=("v100-pcie-32gb", "a100-pcie-80gb", "t4")):
    catalog = DeviceCatalog.load()
    graph = OperatorGraph((LINEAR, RELU), batch_size=512)
    return [
        q
        for name in names
        for q in (
            Query(Kernel(LINEAR), catalog.get(name)),
            Query(Network(graph, 64, "fp16"), catalog.get(name)),
            Query(Network(graph, 64, "fp32", "training"), catalog.get(name)),
        )
    ]


class TestRoofline(PredictorContract):
    make = staticmethod(Roofline)
    queries = staticmethod(queries)


def test_the_bound_of_a_matrix_product_is_flops_over_peak():
    device = DeviceCatalog.load().get("v100-pcie-32gb")
    answer = Roofline().predict([Query(Kernel(LINEAR), device)])
    expected = 2 * 512 * 1024 * 4096 / (device.peak("fp32") * 1e9)
    assert answer.values["latency_ms"][0] == pytest.approx(expected)


def test_twice_the_hardware_halves_the_bound():
    catalog = DeviceCatalog.load()
    device = catalog.get("a10")
    double = device.model_copy(
        update={
            "memory_bandwidth_gbs": device.memory_bandwidth_gbs * 2,
            "peak_tflops": {p: 2 * v for p, v in device.peak_tflops.items()},
        }
    )
    graph = OperatorGraph((LINEAR, RELU), batch_size=512)
    one, two = (Roofline().predict([Query(Network(graph, 8, "fp16"), d)]) for d in (device, double))
    np.testing.assert_allclose(one.values["latency_ms"], 2 * two.values["latency_ms"])


def test_training_costs_about_three_forward_passes_where_products_dominate():
    device = DeviceCatalog.load().get("a10")
    big = Operator("linear", "linear", ((8192, 4096),), ((8192, 4096),), 4096 * 4096)
    graph = OperatorGraph((big,) * 8, batch_size=8192)
    times = [
        Roofline().predict([Query(Network(graph, 8192, "fp32", phase), device)])
        for phase in ("inference", "training")
    ]
    ratio = times[1].values["latency_ms"][0] / times[0].values["latency_ms"][0]
    assert 3.0 <= ratio < 3.3


@pytest.mark.parametrize("phase", ["inference", "training"])
@pytest.mark.parametrize("runtime", ["compiled", "tensorrt", "onnxruntime"])
def test_fused_operators_move_their_outer_tensors_alone(phase, runtime):
    chain = [replace(RELU, inputs=(place,)) for place in range(4)]
    graph = OperatorGraph((LINEAR, *chain), batch_size=512)
    network, device = Network(graph, 512, "fp16", phase), DeviceCatalog.load().get("a10")
    eager, fused = (
        Roofline().predict([Query(network, device, Software(runtime=own))]).breakdowns_ms[0]
        for own in ("eager", runtime)
    )
    assert fused["linear"] == eager["linear"]
    assert fused["elementwise"] < (0.3 if phase == "inference" else 0.9) * eager["elementwise"]
    tensor = 2.0 * 512 * 4096 / (device.bandwidth_gbs * 1e6)
    assert fused["elementwise"] >= (2.0 - 1e-9) * tensor


# The constant baseline is a geometric mean, whatever is asked.


QUERIES = [Query(Benchmark("suite", (("n", float(n)),)), Device(name="d", vendor="v", kind="gpu"))
           for n in range(3)]  # fmt: skip


def rows(**values):
    return Measurements(QUERIES, {name: np.array(v) for name, v in values.items()})


class TestConstant(PredictorContract):
    def make(self):
        return Constant().fit(rows(latency_ms=[1.0, 2.0, 4.0]))

    def queries(self):
        return QUERIES


def test_the_mean_is_geometric_unless_a_value_is_not_positive():
    fitted = Constant().fit(rows(latency_ms=[1.0, 10.0, 100.0], change=[-1.0, 0.0, 4.0]))
    assert fitted.means == pytest.approx({"latency_ms": 10.0, "change": 1.0})
    zero = Constant().fit(rows(share=[0.0, 1.0, 5.0]))
    assert zero.means["share"] == pytest.approx(2.0)


def test_missing_values_are_left_out_and_a_metric_without_any_is_none():
    fitted = Constant().fit(rows(latency_ms=[4.0, np.nan, 9.0], power_w=[np.nan] * 3))
    assert fitted.means == pytest.approx({"latency_ms": 6.0})
    assert fitted.metrics == ("latency_ms",)
    assert fitted.answers(QUERIES[0])
    assert not Constant().answers(QUERIES[0])


def test_every_query_gets_it_and_support_rows_replace_it():
    fitted = Constant().fit(rows(latency_ms=[1.0, 10.0, 100.0]))
    assert fitted.predict(QUERIES[:2]).values["latency_ms"] == pytest.approx([10.0, 10.0])
    adapted = fitted.adapt(rows(latency_ms=[4.0, 4.0, 4.0]))
    assert adapted.predict(QUERIES[:1]).values["latency_ms"] == pytest.approx([4.0])
