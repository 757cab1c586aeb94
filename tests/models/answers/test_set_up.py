"""Nothing is said about runs that a device does not do, or whose rate no figure tells."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Kernel, Network
from forerun.models.answers.assumed import not_run, set_up_limits

CATALOG = DeviceCatalog.load()
SCORES = ((2, 4, 8, 8),)
SOFTMAX = Operator("softmax", "aten.softmax", SCORES, SCORES)
ATTENTION = Operator("attention", "aten.attention", ((2, 4, 8, 16),) * 3, ((2, 4, 8, 16),))
RELU = Operator("elementwise", "relu", ((4, 8),), ((4, 8),))


def asked(device, precision="fp32", runtime="eager"):
    return Query(Kernel(RELU, precision), CATALOG.get(device), Software(runtime=runtime))


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_a_processor_has_no_time_in_a_format_without_a_rate(precision):
    reasons = not_run(asked("core-i7-12700h", precision))
    assert set(reasons) == {"latency_ms", "utilisation", "power_w", "energy_j"}
    assert "has no rate of" in reasons["latency_ms"]
    assert not not_run(asked("core-i7-12700h", "tf32"))
    assert not not_run(asked("p4", precision))


def test_a_processor_has_a_time_in_a_format_of_its_sheet():
    assert not not_run(asked("core-i9-10940x", "int8"))


def test_tensorrt_runs_on_gpus_of_nvidia_alone():
    assert not not_run(asked("l4", runtime="tensorrt"))
    for other in ("mi300x", "core-i7-12700h"):
        assert "NVIDIA" in not_run(asked(other, runtime="tensorrt"))["latency_ms"]


@pytest.mark.parametrize(
    ("operator", "attention", "said"),
    [(SOFTMAX, "flash", True), (SOFTMAX, "eager", False), (ATTENTION, "flash", False)],
)
def test_flash_attention_of_a_graph_in_steps_is_refused_in_the_limits(operator, attention, said):
    network = Network(OperatorGraph((operator,)), inference=InferenceSetup(attention=attention))
    limits = set_up_limits(Query(network, CATALOG.get("a10")))
    assert any("trace the network" in limit.message for limit in limits) is said
