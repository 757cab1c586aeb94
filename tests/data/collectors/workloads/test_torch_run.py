"""Runs by torch compute in the precision that a query of that name means."""

import pytest

from forerun.data.collectors.runner.trial import Source, Trial

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
