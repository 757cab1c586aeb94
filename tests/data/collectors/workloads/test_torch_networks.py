"""The zoo: parameters as published, work as the plan guesses it, graphs without unknowns.

Runs by torch compute in the precision that a query of that name means.
"""

from functools import cache

import pytest

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.torch_networks import NETWORKS, QUICK_GFLOPS
from forerun.data.facts import facts_of
from tests.every import for_every

pytest.importorskip("torch")


FACTS = facts_of(__file__)
PUBLISHED = FACTS["published"]
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
