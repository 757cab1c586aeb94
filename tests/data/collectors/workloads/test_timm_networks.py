"""Networks of timm: plans know their work and their images' side."""

from importlib.util import find_spec

import pytest

pytest.importorskip("torch")
if find_spec("timm") is None:
    pytest.skip("timm is not installed", allow_module_level=True)

from forerun.data.collectors.workloads.torch_networks import NETWORKS, TIMM_NETWORKS, definition_of
from forerun.features.readers.torch_trace import declare_operators
from forerun.service.adaptation.collecting import flops_of, zoo_graph
from tests.every import for_every

SOME = ("lcnet_150", "regnety_016", "crossvit_15_240", "seresnet50")


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_work_is_what_plans_guess_by(name):
    graph = zoo_graph(name)
    assert flops_of(graph) / 1e9 == pytest.approx(TIMM_NETWORKS[name].gflops, rel=0.15)


@for_every("name", TIMM_NETWORKS)
def test_images_have_the_side_that_timm_says(name):
    declare_operators()
    import timm

    assert TIMM_NETWORKS[name].shape == timm.get_pretrained_cfg(name).input_size


def test_no_name_is_in_two_zoos():
    assert not set(TIMM_NETWORKS) & set(NETWORKS)
    assert definition_of("regnety_016") is TIMM_NETWORKS["regnety_016"]
    assert definition_of("resnet18") is NETWORKS["resnet18"]
    assert definition_of("nothing") is None
