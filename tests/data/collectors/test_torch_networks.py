"""The zoo: parameters as published, work as the plan guesses it, graphs without unknowns."""

import pytest

pytest.importorskip("torch")

from forerun.data.collectors.torch_networks import NETWORKS

PUBLISHED = {
    **{"resnet18": 11.69e6, "resnet50": 25.56e6, "resnext50-32x4d": 25.03e6, "vgg16": 138.36e6},
    **{"wide-resnet50": 68.88e6, "alexnet": 61.10e6, "squeezenet": 1.24e6, "densenet121": 7.98e6},
    **{"mobilenet-v2": 3.50e6, "efficientnet-b0": 5.29e6, "convnext-tiny": 28.59e6},
    **{"vit-small": 22.05e6, "vit-base": 86.57e6, "vit-large": 304.33e6, "mixer-base": 59.88e6},
}
"""Weights as torchvision and timm count them."""


def meta(name):
    import torch

    with torch.device("meta"):
        return NETWORKS[name].build().eval()


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_are_as_many_as_published(name):
    count = sum(p.numel() for p in meta(name).parameters())
    assert count == pytest.approx(PUBLISHED[name], rel=0.01)


SOME = ("resnet18", "unet-256", "mixer-base", "bert-base-128", "llama-1b-512", "lstm-2x1024-64")


@pytest.mark.parametrize("name", SOME)
def test_work_is_what_plans_guess_by(name):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        meta(name)(NETWORKS[name].example(2, "meta"))
    assert counter.get_total_flops() / 2e9 == pytest.approx(NETWORKS[name].gflops, rel=0.1)


def test_names_are_those_of_files():
    assert len(NETWORKS) >= 20
    assert all(name.replace("-", "").isalnum() for name in NETWORKS)
