"""Protocols of measured kernels: rows become the right kernels, and held-out rows never train."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.language_models.kernel import (
    AttentionKernel,
    CollectiveKernel,
    ElementwiseKernel,
    ExpertsKernel,
    GemmKernel,
)
from forerun.models.artifact.training_record import TrainingRecord
from forerun.training.protocols.language_models.kernels import (
    AiConfiguratorProtocols,
    KernelRows,
    PowerOfKernels,
    operator_rows,
)
from forerun.training.release.fit import Recipe, _training_rows
from tests.devices import CATALOG

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


def test_the_factor_of_the_baseline_is_that_of_the_training_set(tmp_path):
    """It is the same for all rows of a task, whatever their measured times."""
    bundle = Bundle.write(tmp_path / "b", "aiconfigurator", {"gemm": gemm_table()})
    folds = [*AiConfiguratorProtocols().folds(bundle, CATALOG)]
    for fold in (own for own in folds if own.protocol == "gemm_unseen_device"):
        for task in fold.tasks:
            factor = task.baselines["roofline_times_factor"] / task.baselines["roofline"]
            assert np.ptp(factor) == pytest.approx(0.0, abs=1e-9)


def test_operators_become_products_of_one_device_of_several():
    """Heads, keys and inner width are divided over two devices; two equal models are one row."""
    rows = operator_rows(operator_table(), CATALOG).measured
    assert len(rows) == 3 * len(OPERATORS) * 4 - 3 * 4
    found = {query.workload.kernel for query in rows.queries}
    assert GemmKernel(128, (16 + 2 * 4) * 128, 4096, "fp16") in found
    assert GemmKernel(128, 4096, 16 * 128, "fp16") in found
    assert GemmKernel(128, 2 * 7168, 4096, "fp16") in found
    assert ElementwiseKernel("rotary", 1, (16 + 4) * 128, "fp16") in found
    assert ElementwiseKernel("activation", 1, 7168, "fp16") in found
    assert ElementwiseKernel("add", 128, 4096, "fp16") in found


SYSTEMS = ("a100_sxm", "h100_sxm", "l40s")


def timed(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a time for each row."""
    return frame.assign(latency_ms=0.01 + 0.001 * np.arange(len(frame)))


def attention_table() -> pd.DataFrame:
    """Two batches and two contexts on each system; some rows have a window."""
    keys = product(SYSTEMS, (1, 8), (15, 1023), (8, 32), (np.nan, 128.0))
    names = ["system", "batch_size", "step", "num_heads", "window_size"]
    types = {"attn_dtype": "bfloat16", "kv_cache_dtype": "fp8", "framework": "vllm"}
    frame = pd.DataFrame(keys, columns=names)
    return timed(frame.assign(isl=1, num_key_value_heads=8, head_dim=128, **types))


def experts_table() -> pd.DataFrame:
    """Equal and skewed loads on each system."""
    keys = product(SYSTEMS, (1, 256), (64, 128), ("balanced", "power_law_1.2"))
    frame = pd.DataFrame(keys, columns=["system", "num_tokens", "num_experts", "distribution"])
    sizes = {"hidden_size": 2048, "inter_size": 768, "topk": 8, "moe_tp_size": 2, "moe_ep_size": 4}
    return timed(frame.assign(framework="sglang", moe_dtype="bfloat16", **sizes))


def collective_tables() -> dict[str, pd.DataFrame]:
    """One message in two types and two versions, and one by three kinds of kernels."""
    keys = product(SYSTEMS, ("half", "int8"), ("1", "2"))
    nccl = pd.DataFrame(keys, columns=["system", "nccl_dtype", "version"])
    nccl["message_size_elems"] = np.where(nccl["nccl_dtype"] == "half", 2**19, 2**20)
    nccl = timed(nccl.assign(op_name="alltoall", num_gpus=8))
    keys = product(SYSTEMS, ("vLLM_custom_eager", "vLLM_custom_graph", "TRTLLM"))
    custom = pd.DataFrame(keys, columns=["system", "kernel_source"])
    sizes = {"allreduce_dtype": "bfloat16", "num_gpus": 4, "message_size_elems": 1024}
    return {"nccl": nccl, "custom_allreduce": timed(custom.assign(framework="vllm", **sizes))}


@pytest.fixture
def bundle(tmp_path) -> Bundle:
    """A bundle with all tables of these kernels."""
    decode, experts = attention_table(), experts_table()
    watts = {"power_w": 300.0, "power_limit_w": 700.0}
    tables = {
        "context_attention": decode.assign(isl=64, step=0),
        "generation_attention": decode,
        "moe": experts,
        **collective_tables(),
        "power_moe": experts.assign(**watts),
        "power_generation_attention": decode.assign(**watts),
    }
    return Bundle.write(tmp_path, "aiconfigurator", tables)


def tables(bundle: Bundle) -> list[KernelRows]:
    """All kernels but products."""
    return list(AiConfiguratorProtocols().tables(bundle, CATALOG))


def test_the_constant_share_is_that_of_the_training_set(bundle):
    """Trained on 300 W of 400 W and of 350 W; for the held-out H100, shares of its 700 W."""
    folds = {
        task.device: task for fold in PowerOfKernels().folds(bundle, CATALOG) for task in fold.tasks
    }
    expected = 700.0 * np.median([300 / 400, 300 / 350])
    np.testing.assert_allclose(folds["h100-sxm-80gb"].baselines["constant_share"], expected)


def test_rows_become_the_kernels_that_they_measured(bundle):
    found = {q.workload.kernel for rows in tables(bundle) for q in rows.measured.queries}
    heads = (32, 8, 128)
    assert AttentionKernel(8, 1, 1023, *heads, "decode", 128, "bf16", "fp8") in found
    assert AttentionKernel(8, 64, 0, *heads, "prefill", None, "bf16", "fp8") in found
    assert ExpertsKernel(256, 2048, 768, 128, 8, 2, 4, 1.2, "bf16") in found


def test_messages_are_in_bytes_and_versions_are_merged(bundle):
    """2^19 halves and 2^20 bytes are one message of 1 MiB, with the median time of four rows."""
    *_, collectives = tables(bundle)
    rows = collectives.measured
    libraries = [query.workload.kernel.library for query in rows.queries]
    nccl = rows.take(np.array([library == "nccl" for library in libraries]))
    assert [q.workload.kernel for q in nccl.queries] == [
        CollectiveKernel("all_to_all", 8, 2**20, "nccl")
    ] * len(SYSTEMS)
    assert nccl.values["latency_ms"][0] == pytest.approx(np.mean([0.01, 0.011, 0.012, 0.013]))
    engines = {(q.workload.kernel.library, q.workload.engine) for q in rows.queries}
    assert engines >= {("custom", "vllm"), ("custom_graph", "vllm"), ("custom_graph", "trtllm")}


def test_rows_with_power_add_keys_and_counts_to_the_record_of_the_whole_bundle(bundle):
    """`kernel_power` is fitted after `llm_kernels`, whose rows the record lists and counts."""
    (rows, *_) = [replace(one, most=10).training_rows() for one in tables(bundle)]
    assert "site" not in rows.groups
    assert set(rows.groups["op_class"]) == {"prefill"}
    record = TrainingRecord().with_rows(bundle, rows)
    recipe = Recipe("kernel_power", ("aiconfigurator/power",))
    power, kept = _training_rows(recipe, {bundle.name: bundle}, record)
    assert len(power) == len(PowerOfKernels().training_rows(bundle, CATALOG)) > 0
    assert "power_w" in power.values
    keys = {key: set(values) for key, values in kept.keys[bundle.name].items()}
    assert keys["op_class"] == {"decode", "experts", "prefill"}
    assert all(keys[key] >= set(values) for key, values in record.keys[bundle.name].items())
    counts = kept.counts[bundle.name]
    assert {setting.metric for setting in counts} == {"latency_ms", "power_w"}
    assert counts.items() >= record.counts[bundle.name].items()
    assert replace(kept, keys=record.keys, counts=record.counts) == record
    assert _training_rows(recipe, {bundle.name: bundle}, TrainingRecord())[1] != TrainingRecord()
