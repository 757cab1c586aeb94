"""Protocols of measured kernels: what is held out never trains; rows become the right kernels."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.kernel import ElementwiseKernel, GemmKernel
from forerun.training.protocols.language_models.kernels import (
    AiConfiguratorProtocols,
    VidurProtocols,
    operator_rows,
)
from forerun.training.protocols.protocol import Fold

CATALOG = DeviceCatalog.load()
OPERATORS = ("emb", "attn_pre_proj", "attn_rope", "attn_post_proj", "mlp_up_proj", "mlp_act", "add")


def gemm_table() -> pd.DataFrame:
    """Products on three systems by two engines, each slower than the bound by its row."""
    keys = product(
        ("a100_sxm", "h100_sxm", "l40s"), ("sglang", "vllm"), (1, 64), (512, 1024), (512, 2048)
    )
    frame = pd.DataFrame(keys, columns=["system", "framework", "m", "n", "k"])
    return frame.assign(gemm_dtype="bfloat16", latency_ms=0.01 + 0.001 * np.arange(len(frame)))


def operator_table() -> pd.DataFrame:
    """All operators of two models that are alike but for their names, on three GPUs."""
    keys = product(("a100", "a40", "h100"), ("one", "two"), OPERATORS, (1, 128), (1, 2))
    frame = pd.DataFrame(keys, columns=["device", "model", "op", "num_tokens", "tp"])
    sizes = {"n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_expanded_embd": 14336}
    return frame.assign(**sizes, use_gated_mlp=True, median_ms=0.01 * (1 + frame.index % 7))


@pytest.fixture
def folds(tmp_path) -> dict[str, list[Fold]]:
    """Folds of both datasets by protocol."""
    found: dict[str, list[Fold]] = {}
    for protocols, table, frame in (
        (AiConfiguratorProtocols(), "gemm", gemm_table()),
        (VidurProtocols(), "ops_mlp", operator_table()),
    ):
        bundle = Bundle.write(tmp_path / table, protocols.dataset, {table: frame})
        for fold in protocols.folds(bundle, CATALOG):
            found.setdefault(f"{protocols.dataset}/{fold.protocol}", []).append(fold)
    return found


def test_the_factor_of_the_baseline_is_that_of_the_training_set(folds):
    """It is the same for all rows of a task, whatever their measured times."""
    for fold in folds["aiconfigurator/gemm_unseen_device"]:
        for task in fold.tasks:
            factor = task.baselines["roofline_times_factor"] / task.baselines["roofline"]
            assert np.ptp(factor) == pytest.approx(0.0, abs=1e-9)


def test_operators_become_products_of_one_device_of_several():
    """Heads, keys and inner width are divided over two devices; two models alike are one row."""
    rows = operator_rows(operator_table(), CATALOG).measured
    assert len(rows) == 3 * len(OPERATORS) * 4 - 3 * 4
    found = {query.workload.kernel for query in rows.queries}
    assert GemmKernel(128, (16 + 2 * 4) * 128, 4096, "fp16") in found
    assert GemmKernel(128, 4096, 16 * 128, "fp16") in found
    assert GemmKernel(128, 2 * 7168, 4096, "fp16") in found
    assert ElementwiseKernel("rotary", 1, (16 + 4) * 128, "fp16") in found
    assert ElementwiseKernel("activation", 1, 7168, "fp16") in found
    assert ElementwiseKernel("add", 128, 4096, "fp16") in found
