"""The roofline predictor: the contract, and monotonicity in the hardware."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.models.baselines.roofline import Roofline
from forerun.models.contract import PredictorContract

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
    def make(self):
        return Roofline()

    def queries(self):
        return queries()


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
