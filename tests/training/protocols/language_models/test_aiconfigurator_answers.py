"""What AIConfigurator is asked about serving runs, and what of its answers is stored."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.training.protocols.language_models.aiconfigurator_answers import arguments, asked
from forerun.training.protocols.language_models.aiconfigurator_serving import serving_runs
from tests.training.protocols.language_models.test_serving_queries import table

STORED = Path(__file__).resolve().parents[4] / "docs/results/aiconfigurator.csv"
HAS_PEER = find_spec("aiconfigurator") is not None
DEEPSEEK = {"model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "backend": "sglang"}
SPREAD = {"tp_size": 1.0, "attention_dp_size": 8.0, "moe_ep_size": 8.0, "moe_tp_size": 1.0}


def given(**row):
    runs = serving_runs(table(row), DeviceCatalog.load())[0]
    return arguments(runs.queries[0], str(runs.groups["model"][0]))


def test_a_dense_model_is_asked_about_without_sizes_of_experts():
    assert given() == {
        "model_path": "meta-llama/Meta-Llama-3.1-8B",
        "system_name": "h100_sxm",
        "backend_name": "vllm",
        "isl": 1024,
        "osl": 128,
        "tp_size": 2,
        "pp_size": 1,
        "attention_dp_size": 1,
        "batch_size": 8,
        "gemm_quant_mode": "bfloat16",
    }


def test_a_batch_is_that_of_one_data_parallel_rank():
    found = given(**DEEPSEEK, **SPREAD, precision="fp8", concurrency=100.0)
    assert (found["tp_size"], found["attention_dp_size"], found["batch_size"]) == (1, 8, 13)
    assert (found["moe_ep_size"], found["moe_tp_size"]) == (8, 1)


def test_a_batch_is_that_of_one_worker():
    assert given(batch_size=13.0, concurrency=416.0)["batch_size"] == 26


def test_experts_that_are_not_spread_are_divided_over_all_devices():
    found = given(**DEEPSEEK, tp_size=8.0, moe_tp_size=8.0, moe_ep_size=1.0)
    assert (found["moe_ep_size"], found["moe_tp_size"]) == (1, 8)


@pytest.mark.parametrize(
    ("model", "precision", "dense", "experts"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8", "fp8_block", "fp8_block"),
        ("deepseek-ai/DeepSeek-V3", "fp4", "nvfp4", "nvfp4"),
        ("openai/gpt-oss-120b", "fp4", None, None),
        ("meta-llama/Llama-3.1-70B", "fp8", "fp8", None),
    ],
)
def test_formats_are_those_of_the_checkpoint(model, precision, dense, experts):
    found = given(model_path=model, precision=precision, tp_size=8.0)
    assert found.get("gemm_quant_mode") == dense
    assert found.get("moe_quant_mode") == experts


@pytest.mark.parametrize(
    ("system", "engine", "form"),
    [
        ("b200_sxm", "trtllm", "w4a8_mxfp4_mxfp8"),
        ("b200_sxm", "vllm", None),
        ("h100_sxm", "trtllm", None),
    ],
)
def test_activations_of_mxfp4_experts_are_fp8_under_tensorrt_on_blackwell(system, engine, form):
    found = given(model_path="openai/gpt-oss-120b", system=system, backend=engine, tp_size=8.0)
    assert found.get("moe_quant_mode") == form


def test_disaggregated_runs_are_refused():
    pools = {f"{pool}_tp_size": 4.0 for pool in ("prefill", "decode")}
    pools |= {f"{pool}_num_workers": 1.0 for pool in ("prefill", "decode")}
    with pytest.raises(InputError, match="aggregated deployments"):
        given(mode="disagg", **pools)


@pytest.mark.skipif(HAS_PEER, reason="the extra `peers` is installed")
def test_without_the_extra_the_error_names_it():
    with pytest.raises(InputError, match=r"forerun\[peers\]"):
        asked(given())


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PEER, reason="the extra `peers` is not installed")
def test_an_answer_has_both_times_and_the_tables_that_it_rests_on():
    found = asked(given())
    assert 0 < found.tpot_ms < found.ttft_ms
    assert found.tables
    assert not found.refusal


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PEER, reason="the extra `peers` is not installed")
def test_a_refusal_is_one_line():
    found = asked({**given(), "model_path": "nobody/nothing"})
    assert np.isnan(found.tpot_ms)
    assert found.refusal
    assert "\n" not in found.refusal


def test_every_stored_row_is_an_answer_or_a_refusal():
    stored = pd.read_csv(STORED)
    answered = stored["tpot_ms"].notna()
    assert stored["id"].is_unique
    assert (stored.loc[answered, ["tpot_ms", "ttft_ms"]] > 0).all(axis=None)
    assert (stored["ttft_ms"].notna() == answered).all()
    assert (stored["tables"].notna() == answered).all()
    assert (stored["refusal"].isna() == answered).all()
