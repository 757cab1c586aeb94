"""Networks whose power was measured: their packaged graphs are what tracing gives."""

from importlib.util import find_spec

import pytest

from forerun.features.published.powered import CIFAR, SQUAD, TWEETS, powered
from forerun.features.readers.torch_trace import declare_operators
from forerun.training.protocols.power.torch_op_energy import power_graphs


def test_every_network_has_a_packaged_graph():
    assert set(dict(powered())) == set(power_graphs())
    assert {CIFAR, SQUAD, TWEETS} <= set(power_graphs())


def test_the_network_of_cifar_keeps_its_resolution_in_the_first_layer():
    first = power_graphs()[CIFAR].operators[0]
    assert first.output_shapes[0][2:] == (32, 32)


@pytest.mark.parametrize("name", ["resnet18-32", "squeezenet1_1-227"])
def test_tracing_anew_gives_the_packaged_graph(name):
    if find_spec("torch") is None or find_spec("torchvision") is None:
        pytest.skip("torch or torchvision is not installed")
    declare_operators()
    assert dict(powered())[name].traced().digest == power_graphs()[name].digest
