"""Serving runs: the same run written in several ways is one deployment, on one side of a split."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.aiconfigurator_serving import (
    RUNS,
    AiConfiguratorServing,
    deployments,
    layout,
    networks,
    repeats,
    setups,
)
from forerun.data.quality import counts
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_language_models import serving_run, serving_runs

DEEPSEEK = {"model_path": "deepseek-ai/DeepSeek-R1", "gemm_quant_mode": "fp8_block"}


@pytest.fixture(scope="module")
def packaged():
    dataset = AiConfiguratorServing()
    return Bundle.open(dataset.packaged().folder, dataset.name)


class TestAiConfiguratorServing(DatasetContract):
    cls = AiConfiguratorServing

    def test_modes_are_kept_apart(self, bundle):
        mode = bundle.table(RUNS)["mode"]
        for split in AiConfiguratorServing().splits(bundle):
            one = "disagg" if "disaggregated" in split.protocol else "agg"
            assert set(mode[split.train | split.held_out]) == {one}

    def test_protocols(self, bundle):
        names = {s.protocol.partition("/")[0] for s in AiConfiguratorServing().splits(bundle)}
        kinds = ("unseen_deployment", "unseen_setup", "unseen_device", "unseen_model")
        assert names == {f"{k}_{m}" for k in kinds for m in ("aggregated", "disaggregated")}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((4, 1, 1, 1), (4, 1, 1)),
        ((8, 1, 1, 8), (8, 1, 8)),
        ((16, 1, 4, 4), (4, 1, 4)),
        ((64, 1, 8, 8), (8, 1, 8)),
        ((1, 8, 1, 8), (8, 8, 8)),
        ((1, 64, 8, 8), (8, 8, 8)),
        ((4, 4, 1, 16), (4, 4, 4)),
        ((0, 0, 0, 0), (1, 1, 1)),
        ((np.nan, np.nan, np.nan, np.nan), (1, 1, 1)),
    ],
)
def test_the_gpus_of_a_worker_are_counted_in_every_convention(sizes, expected):
    names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    row = serving_run(0, **dict(zip(names, map(float, sizes), strict=True)))
    assert tuple(layout(serving_runs(row)).iloc[0]) == expected


def test_the_tensor_parallel_size_in_an_id_is_the_number_of_gpus():
    rows = [serving_run(0, id="a_tp2_0_ep1_7", tp_size=16.0), serving_run(1, tp_size=16.0)]
    assert layout(serving_runs(*rows))["devices"].tolist() == [2.0, 16.0]


def test_prefill_and_decode_workers_have_separate_layouts():
    runs = serving_runs(serving_run(0, prefill_tp_size=4.0, decode_tp_size=2.0))
    assert layout(runs, "prefill_")["devices"].tolist() == [4.0]
    assert layout(runs, "decode_")["devices"].tolist() == [2.0]


def test_checkpoints_of_the_same_layers_are_one_network():
    rows = [serving_run(0, **DEEPSEEK), serving_run(1, model_path="nvidia/DeepSeek-V3.1-NVFP4")]
    assert networks(serving_runs(*rows)).tolist() == ["deepseek-ai/DeepSeek-V3"] * 2


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"concurrency": 64.0, "batch_size": 16.0, "source": "campaign two"}, True),
        ({"backend_version": "0.19.1"}, True),
        ({"gemm_quant_mode": None}, True),
        ({"tp_size": 2.0}, False),
        ({"osl": 128}, False),
        ({"system": "b200_sxm"}, False),
        ({"backend": "sglang"}, False),
        ({"gemm_quant_mode": "nvfp4"}, False),
        ({"model_path": "zhipuai/GLM-5"}, False),
        ({"model_path": "zhipuai/GLM-5", "ttft_ms": 100.0, "tpot_ms": 10.0}, True),
    ],
)
def test_runs_of_a_deployment_differ_only_in_load_unless_results_were_copied(changes, same):
    found = deployments(serving_runs(serving_run(0), serving_run(1, **changes)))
    assert (found[0] == found[1]) == same


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"concurrency": 64.0, "batch_size": 16.0, "source": "campaign two"}, True),
        ({"ttft_ms": 123.0, "tpot_ms": 4.0}, True),
        ({"backend_version": "0.19.1"}, False),
        ({"tp_size": 2.0}, False),
        ({"model_path": "zhipuai/GLM-5", "ttft_ms": 100.0, "tpot_ms": 10.0}, False),
    ],
)
def test_runs_of_a_setup_are_written_identically_except_for_their_load(changes, same):
    found = setups(serving_runs(serving_run(0), serving_run(1, **changes)))
    assert (found[0] == found[1]) == same


@pytest.mark.parametrize(
    ("changes", "repeat"),
    [
        ({}, True),
        ({"ttft_ms": 100.15}, True),
        ({"ttft_ms": 100.4}, False),
        ({"tpot_ms": 10.1}, False),
        ({"concurrency": 16.0}, False),
        ({"tp_size": 8.0, "tpot_ms": 10.001}, False),
    ],
)
def test_a_repeat_has_the_same_deployment_and_load_and_times_within_a_fifth_of_a_percent(
    changes, repeat
):
    first = {"ttft_ms": 100.0, "tpot_ms": 10.0}
    runs = serving_runs(serving_run(0, **first), serving_run(1, **{**first, **changes}))
    assert repeats(runs).tolist() == [False, repeat]


@pytest.mark.slow
def test_no_run_and_no_deployment_of_the_packaged_rows_is_on_both_sides(packaged):
    runs = packaged.table(RUNS)
    named, result = deployments(runs), runs[["ttft_ms", "tpot_ms"]].apply(tuple, axis=1)
    for split in AiConfiguratorServing().splits(packaged):
        split.check(runs)
        if split.protocol.startswith("unseen_setup"):
            continue
        assert set(result[split.train]).isdisjoint(result[split.held_out]), split.protocol
        if split.protocol.startswith("unseen_deployment"):
            assert set(named[split.train]).isdisjoint(named[split.held_out])


def test_copied_results_never_join_aggregated_runs_with_different_gpu_counts(packaged):
    runs = packaged.table(RUNS)
    rows = (runs["mode"] == "agg").to_numpy()
    sizes = layout(runs)[rows].groupby(deployments(runs)[rows]).nunique()
    assert len(sizes) == 491
    assert (sizes == 1).to_numpy().all()


@pytest.mark.slow
def test_the_datasheet_describes_the_packaged_rows(packaged):
    runs = packaged.table(RUNS)
    dataset = AiConfiguratorServing()
    dataset.validate({name: packaged.table(name) for name in packaged.tables()})
    assert runs["mode"].value_counts().to_dict() == {"agg": 2637, "disagg": 1037}
    assert repeats(runs).sum() == counts(dataset.flags(packaged))["duplicate"] == 559
    assert "559 rows repeat an earlier run" in packaged.datasheet
