"""Published training tables come with the package, and what their rows mean is found by rules."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.datasets.language_models.published_training import (
    REPEATED,
    PublishedTraining,
    configurations,
    formats,
    reasons,
    runs,
    seconds,
)
from tests.contracts.tiny_published_training import (
    BLOOM,
    BRIDGE,
    DEEPSPEED,
    PAPER,
    TITAN,
    training_rows,
    training_table,
)
from tests.data.datasets.packaged_contract import PackagedContract


class TestPublishedTraining(PackagedContract):
    cls = PublishedTraining
    reference_table = "table"

    def test_a_family_a_gpu_and_a_chip_are_left_out_whole(self, bundle, splits):
        table = bundle.table("table")
        family = splits["unseen_family/Llama"].held_out
        assert set(table["family"][family]) == {"Llama-3"}
        assert not (table["family"][splits["unseen_family/Llama"].train] == "Llama-3").any()
        chip = splits["unseen_chip/h100"]
        assert set(table["gpu"][chip.held_out]) == {"h100-sxm-80gb", "h100-sxm-96gb-500w"}
        assert not table["gpu"][chip.train].str.startswith("h100").any()

    def test_each_of_the_packaged_rows_has_a_source(self, packaged):
        dataset = PublishedTraining()
        sources = dataset.documents(dataset.packaged())["sources"]["sources"]
        rows = packaged["table"]["source_repo"].fillna("").value_counts()
        assert {one["repository"]: one["rows"] for one in sources} == rows.to_dict()
        assert all(one["licence"] for one in sources)
        papers = packaged["table"][packaged["table"]["source_repo"].isna()]
        assert papers["source_path"].str.startswith("arXiv:").all()

    def test_every_row_but_those_of_known_reasons_takes_part(self, packaged):
        found = pd.Series(reasons(packaged["table"])).value_counts()
        assert found[""] > 400
        assert found["no spec sheet of the device"] == 19

    def test_equal_runs_are_in_one_fold(self, packaged):
        groups = PublishedTraining().groups(packaged["table"])
        folds = pd.Series(groups["fold"]).groupby(groups["config"]).nunique()
        assert (folds == 1).all()
        assert len(set(groups["fold"])) == 10

    def test_printed_rates_and_times_agree(self, packaged):
        """Tokens per second, batch and length give the step time that the table prints."""
        table = packaged["table"]
        kept = (reasons(table) == "") & table["step_time_s"].notna().to_numpy()
        rows, own = table[kept], runs(table)[kept]
        rate = rows["tokens_per_s_per_gpu"] * own["devices"]
        by_rate = own["global_batch"] * own["sequence_tokens"] / rate
        assert (np.abs(by_rate / rows["step_time_s"] - 1.0) < 0.02).mean() > 0.99


def test_rows_are_left_out_with_a_reason():
    assert reasons(training_rows()).tolist()[11:] == [
        REPEATED,
        "no language model",
        "no spec sheet of the device",
        "figures contradict each other",
        "layers or width are not said",
        "framework is not public",
        "batch is not said",
        "neither time nor memory of a step",
        "",
    ]


def test_a_size_that_layers_and_width_contradict_is_left_out():
    table = training_table({**BLOOM, "layers": 106.0, "params": 195e9}, BLOOM)
    assert reasons(table).tolist() == ["figures contradict each other", ""]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, {"framework": "fsdp", "zero_stage": 3, "recompute": "none", "hidden": 768}),
        ({"zero_or_fsdp": "SHARD_GRAD_OP"}, {"zero_stage": 2}),
        (BRIDGE, {"framework": "megatron", "zero_stage": 1, "tensor": 2, "precision": "fp8"}),
        ({**BRIDGE, "zero_or_fsdp": "FSDP 64"}, {"zero_stage": 3}),
        ({**BRIDGE, "pp": 4.0, "vp": 5.0}, {"virtual_stages": 5}),
        ({**BRIDGE, "phase": "lora"}, {"lora_rank": 16}),
        (BLOOM, {"heads": 64, "vocabulary": 250_880, "network_gbit_s": 50, "zero_stage": 1}),
        (
            BLOOM,
            {"framework": "megatron-deepspeed", "sequence_parallel": False, "recompute": "full"},
        ),
        ({**PAPER, "gpu": "h100-sxm-80gb"}, {"framework": "megatron"}),
        (TITAN, {"micro_batch": 4, "global_batch": 256, "runtime": "compiled"}),
        ({**TITAN, "pp_schedule": "interleaved 1F1B"}, {"micro_batch": 2, "virtual_stages": 2}),
        (TITAN, {"metric": "reserved_memory_mib", "model": "meta-llama/Meta-Llama-3.1-405B"}),
        (DEEPSPEED, {"global_batch": 8, "offload": "optimizer", "zero_stage": 3}),
        (PAPER, {"virtual_stages": 3, "zero_stage": 0, "sequence_parallel": True}),
        (PAPER, {"precision": "fp16", "recompute": "selective", "network_gbit_s": 200}),
    ],
)
def test_a_run_follows_from_what_a_row_says(row, expected):
    found = runs(training_table(row)).iloc[0]
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("printed", "form"),
    [
        ("MXFP8", "mxfp8"),
        ("mxfp8_cublas_rceil", "mxfp8"),
        ("FP8-MX", "mxfp8"),
        ("FP8-CS (FP8-MX)", "fp8"),
        ("float8 rowwise_with_gw_hp", "fp8"),
        ("bf16+float8", "fp8"),
        ("amp_fp8", "fp8"),
        ("NVFP4", "nvfp4"),
        ("amp fp16", "fp16"),
        ("BF16", "bf16"),
        (None, "fp8"),
    ],
)
def test_every_spelling_of_a_precision_has_its_format(printed, form):
    assert formats(training_table({**BRIDGE, "precision": printed})).tolist() == [form]


def test_llm_foundry_is_timed_by_tokens_and_others_as_printed():
    table = training_table({"step_time_s": 9.0}, {**BLOOM, "tokens_per_s_per_gpu": 1.0}, TITAN)
    tokens = 64 * 2048 / (8192 * 8), 256 * 8192 / (100 * 512)
    np.testing.assert_allclose(seconds(table), [tokens[0], 123.69, tokens[1]])


def test_repeats_in_other_releases_are_one_configuration_and_other_sizes_are_not():
    later = {**BRIDGE, "precision": "FP8-CS", "framework_version": "25.11", "config_key": "1"}
    table = training_table(BRIDGE, later, {**BRIDGE, "model": "LLAMA3_70B"}, BLOOM)
    keys = configurations(table)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
