"""Published memory tables come with the package, and rules interpret their rows."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.datasets.memory.published_memory import (
    ALLOCATED,
    DEVICE,
    RESERVED,
    PublishedMemory,
    families,
    metrics,
    peak_mib,
    phases,
    reasons,
    sources,
)
from tests.contracts.tiny_published_memory import memory_rows, memory_table
from tests.data.datasets.packaged_contract import PackagedContract


class TestPublishedMemory(PackagedContract):
    cls = PublishedMemory
    reference_table = "table"

    def test_a_family_and_a_source_are_left_out_whole(self, bundle, splits):
        assert {"unseen_model/bert", "unseen_model/gpt", "unseen_model/sam"} <= set(splits)
        assert {"unseen_source/transformers", "unseen_source/segment-anything-fast"} <= set(splits)
        table = bundle.table("table")
        held_out = table[splits["unseen_source/transformers"].held_out]
        assert set(held_out["source_repo"]) == {"huggingface/transformers"}
        assert not splits["unseen_model/sam"].train[splits["unseen_model/sam"].held_out].any()

    def test_each_of_the_packaged_rows_has_a_source(self, packaged):
        dataset, table = PublishedMemory(), packaged["table"]
        assert table["kind"].value_counts()["measured"] == 690
        known = table["source_commit"].dropna()
        assert known.str.fullmatch(r"[0-9a-f]{40}").all()
        sources = dataset.documents(dataset.packaged())["sources"]["sources"]
        assert set(table["source_repo"]) == {one["repository"] for one in sources}
        assert all(one["licence"] for one in sources)

    def test_no_evaluated_peak_is_larger_than_any_device(self, packaged):
        table = packaged["table"]
        assert peak_mib(table)[reasons(table) == ""].max() < 200_000.0


@pytest.mark.parametrize(
    ("tool", "metric"),
    [
        ("torch.cuda.max_memory_allocated x 1e-6 (script read)", ALLOCATED),
        ("peak memory active (torch)", ALLOCATED),
        ("torch max_memory_reserved minus start (peak includes evaluation)", RESERVED),
        ("torch peak, max over ranks", RESERVED),
        ("nvml device used (// 1024**2), includes CUDA context", DEVICE),
        ("not said (GPU column)", ""),
        (None, ""),
    ],
)
def test_what_was_measured_follows_from_the_tool(tool, metric):
    assert metrics(memory_table({"tool": tool})).tolist() == [metric]


def test_a_script_states_the_metric_that_its_table_does_not():
    row = {"source_repo": "pytorch/ao", "source_path": "torchao/optim/README.md"}
    assert metrics(memory_table({**row, "tool": "peak as the source names it"})) == [ALLOCATED]


def test_bytes_under_the_heading_of_megabytes_are_read_as_bytes():
    table = memory_table({"peak_printed": 3.76657e8, "peak_mib": 3.6e8}, {})
    np.testing.assert_allclose(peak_mib(table), [359.21, 953.7], rtol=1e-5)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"kind": "measured (rounded)"}, "printed in whole GB"),
        ({"kind": "measured (percent)"}, "printed in percent of the GPU's memory"),
        ({"kind": "rule of thumb"}, "a rule of thumb, not a measurement"),
        ({"kind": "oom"}, "ran out of memory: no peak"),
        ({"kind": "author approximate"}, "approximate by its author's word"),
        ({"tool": "VRAM column"}, "what was measured is not said"),
        ({"peak_mib": None, "peak_printed": None}, "no peak"),
        ({}, ""),
    ],
)
def test_only_exact_measurements_are_evaluated(row, why):
    assert reasons(memory_table(row)).tolist() == [why]


def test_a_row_printed_twice_counts_once():
    assert reasons(memory_rows())[8] == "repeats a row above"


def test_the_task_distinguishes_training_and_inference():
    tasks = ("training", "pretraining step", "generate, 100 new tokens", "inference forward")
    table = memory_table(*({"task": task} for task in tasks))
    assert phases(table).tolist() == ["training", "training", "inference", "inference"]


def test_two_readings_of_one_repository_are_one_source():
    names = (
        "huggingface/transformers (read from the fork yeatscircle/myTransformers)",
        "huggingface/transformers (older translation, read by string search)",
    )
    table = memory_table(*({"source_repo": name} for name in names))
    assert set(sources(table)) == {"transformers"}


@pytest.mark.parametrize(
    ("models", "family"),
    [
        (("meta-llama/Llama-3.2-3B", "Llama 3.1 8B", "Llama-2-7b", "Llama2-1B"), "llama"),
        (("google-bert/bert-large-uncased", "albert/albert-base-v2"), "bert"),
        (("microsoft/beit-base-patch16-224", "timm/vit_huge_patch14_224"), "vit"),
        (("stable_diffusion_1_5", "sdxl_turbo", "lcm"), "stable_diffusion"),
    ],
)
def test_all_sizes_of_an_architecture_are_one_family(models, family):
    assert set(families(pd.Series(models))) == {family}
