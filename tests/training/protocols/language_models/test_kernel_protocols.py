"""Protocols of measured kernels: what is held out never trains; rows become the right kernels."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.kernel import ElementwiseKernel, GemmKernel
from forerun.data.query import Query
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


def questions(queries: list[Query]) -> set[tuple[object, str]]:
    """What is asked on which device."""
    return {(query.workload, query.device.name) for query in queries}


def test_no_held_out_question_is_in_the_training_set(folds):
    for fold in (fold for of_protocol in folds.values() for fold in of_protocol):
        trained = questions(fold.train.queries)
        held_out = [query for task in fold.tasks for query in task.held_out.queries]
        assert held_out
        assert not trained & questions(held_out), fold.protocol


def test_no_row_of_a_held_out_gpu_is_in_the_training_set(folds):
    held_out = []
    for protocol in ("aiconfigurator/gemm_unseen_device", "vidur/unseen_device"):
        for fold in folds[protocol]:
            own = {task.device for task in fold.tasks}
            assert len(own) == 1
            assert not own & {query.device.name for query in fold.train.queries}
            held_out += own
    assert held_out == ["a100-sxm-80gb", "h100-sxm-80gb", "l40s", "h100-sxm-80gb"]


def test_held_out_sizes_are_in_the_training_set_of_no_gpu(folds):
    (fold,) = folds["aiconfigurator/gemm_held_out_sites"]
    held_out = {site for task in fold.tasks for site in task.held_out.groups["site"].tolist()}
    assert held_out
    assert not held_out & set(fold.train.groups["site"].tolist())


def test_a_task_is_one_engine_and_format_on_one_gpu(folds):
    for fold in folds["aiconfigurator/gemm_unseen_device"]:
        assert {task.name.split("/", 1)[1] for task in fold.tasks} == {
            "gemm/bf16/sglang",
            "gemm/bf16/vllm",
        }
        for task in fold.tasks:
            assert {query.device.name for query in task.held_out.queries} == {task.device}


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
