"""The zoo: parameters as published, work as the plan guesses it, graphs without unknowns.

Runs by torch compute in the precision that a query of that name means.
"""

from functools import cache

import pytest

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.torch_networks import NETWORKS, QUICK_GFLOPS
from tests.every import for_every

pytest.importorskip("torch")


PUBLISHED = {
    **{"resnet18": 11.69e6, "resnet34": 21.80e6, "resnet50": 25.56e6, "resnet101": 44.55e6},
    **{"resnet152": 60.19e6, "resnext50-32x4d": 25.03e6, "resnext101-32x8d": 88.79e6},
    **{"wide-resnet50": 68.88e6, "wide-resnet101": 126.89e6, "vgg11": 132.86e6, "vgg16": 138.36e6},
    **{"vgg19": 143.67e6, "alexnet": 61.10e6, "squeezenet": 1.24e6, "densenet121": 7.98e6},
    **{"densenet161": 28.68e6, "densenet169": 14.15e6, "mobilenet-v2": 3.50e6},
    **{"mobilenet-v2-050": 1.97e6, "mobilenet-v2-140": 6.11e6, "efficientnet-b0": 5.29e6},
    **{"efficientnet-b1-240": 7.79e6, "efficientnet-b2-288": 9.11e6},
    **{"efficientnet-b3-300": 12.23e6, "convnext-tiny": 28.59e6, "convnext-small": 50.22e6},
    **{"convnext-base": 88.59e6, "vit-tiny": 5.72e6, "vit-small": 22.05e6, "vit-base": 86.57e6},
    **{"vit-small-p32": 22.88e6, "vit-base-p8": 86.58e6, "vit-base-p32": 88.22e6},
    **{"vit-large": 304.33e6, "vit-huge-p14": 632.05e6, "mixer-small": 18.53e6},
    **{"mixer-base": 59.88e6, "mixer-base-p32": 60.29e6, "mixer-large": 208.20e6},
    **{"bert-tiny-128": 4.39e6, "bert-mini-128": 11.17e6, "bert-small-128": 28.76e6},
    **{"bert-medium-512": 41.37e6, "bert-base-512": 109.48e6, "lstm-2x650-35": 19.78e6},
    **{"lstm-2x1500-35": 66.02e6},
}
"""Weights as torchvision, timm and the papers of BERT and LSTM count them."""


@cache
def meta(name):
    import torch

    with torch.device("meta"):
        return NETWORKS[name].build().eval()


@for_every("name", PUBLISHED)
def test_weights_are_as_many_as_published(name):
    count = sum(p.numel() for p in meta(name).parameters())
    assert count == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.slow
@for_every("name", NETWORKS)
def test_work_is_what_plans_guess_by(name):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        meta(name)(NETWORKS[name].example(2, "meta"))
    assert counter.get_total_flops() / 2e9 == pytest.approx(NETWORKS[name].gflops, rel=0.05)


def test_names_are_those_of_files():
    assert len(NETWORKS) >= 60
    assert all(name.replace("-", "").isalnum() for name in NETWORKS)


def test_three_batch_sizes_rise_to_what_is_quick_and_no_further():
    for definition in NETWORKS.values():
        one, middle, most = definition.sizes
        assert one == 1 < middle < most <= 256
        assert most == 4 or definition.gflops * most <= QUICK_GFLOPS


torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("precision", "products", "convolutions"),
    [("fp32", False, True), ("tf32", True, True), ("bf16", False, False)],
)
def test_fp32_allows_tf32_for_convolutions_alone_as_pytorch_does(
    precision: str, products: bool, convolutions: bool
) -> None:
    from forerun.data.collectors.workloads.torch_run import torch_run

    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch_run(Trial(Source("bert-tiny-128"), precision), "cpu")
        assert torch.backends.cuda.matmul.allow_tf32 is products
        assert torch.backends.cudnn.allow_tf32 is convolutions
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed


@pytest.mark.parametrize("recorded", [False, True])
def test_an_optimizer_counts_on_the_gpu_only_where_its_step_is_recorded(monkeypatch, recorded):
    from forerun.data.collectors.workloads.torch_run import torch_run

    made, adamw = [], torch.optim.AdamW

    def watched(parameters, **options):
        made.append(options["capturable"])
        return adamw(parameters, lr=options["lr"])

    monkeypatch.setattr(torch.optim, "AdamW", watched)
    torch_run(Trial(Source("bert-tiny-128"), phase="training", cuda_graph=recorded), "cpu")()
    assert made == [recorded]
