"""Networks on AMD GPUs take no less than their convolutions do when each is asked alone."""

from dataclasses import replace

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.named.networks import network_named
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.models.answers.answer import Asked, answers_to
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled

BATCH = 16
IN_USE = InUse(bundled())


def answered(workload, device, **software):
    query = Query(workload, DeviceCatalog.load().get(device), Software(**software))
    return answers_to([Asked(query, ("latency_ms", "energy_j"))], IN_USE)[0]


def convolutions_ms(graph, device, precision):
    """The sum of the answers about each convolution of the graph alone, at the batch size."""
    alone = 0.0
    for op in (op for op in graph.operators if op.kind == "conv"):
        shapes = {
            name: tuple((BATCH, *shape[1:]) for shape in getattr(op, name))
            for name in ("input_shapes", "output_shapes")
        }
        kernel = Kernel(replace(op, **shapes), precision)
        alone += op.repeat * answered(kernel, device).estimates["latency_ms"].value
    return alone


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("device", ["mi300x", "rx-6800-xt", "mi250x"])
def test_a_network_takes_no_less_than_its_convolutions(device, precision):
    graph = network_named("resnet18")
    found = answered(Network(graph, BATCH, precision), device)
    alone, latency = convolutions_ms(graph, device, precision), found.estimates["latency_ms"]
    assert found.breakdown_ms["conv"] == pytest.approx(alone, rel=1e-6)
    assert latency.value > alone
    assert sum(found.breakdown_ms.values()) == pytest.approx(latency.value)
    assert found.trust["latency_ms"].grade == "C"
    assert any("networks were measured on NVIDIA GPUs" in str(line) for line in found.limits)


def test_gpus_of_others_and_what_a_user_measured_stay():
    run = Network(network_named("resnet18"), BATCH, "fp16")
    assert not any("AMD" in str(line) for line in answered(run, "a100-sxm-80gb").limits)
