"""LLM-Inference-Bench, Splitwise and traces: whole requests, their splits and their traps."""

import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.llm_inference_bench import (
    SUPPORT_ROWS,
    LlmInferenceBench,
    contradictory,
)
from forerun.data.datasets.language_models.llm_traces import LlmTraces
from forerun.data.datasets.language_models.llmd_traces import LlmdTraces
from forerun.data.datasets.language_models.splitwise import Splitwise
from forerun.data.quality import counts
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_upstream import tiny_upstream


class TestLlmInferenceBench(DatasetContract):
    cls = LlmInferenceBench

    def test_one_accelerator_under_two_names_is_held_out_whole(self, bundle):
        splits = {s.protocol: s for s in LlmInferenceBench().splits(bundle)}
        hardware = bundle.table("results")["hardware"]
        held_out = splits["unseen_device/Intel Max 1550"].held_out
        assert set(hardware[held_out]) == {"Intel Max 1550", "Intel PVC GPU"}

    def test_a_support_set_has_ten_rows(self, bundle):
        splits = {s.protocol: s for s in LlmInferenceBench().splits(bundle)}
        split, results = splits["few_rows/results/Nvidia H100 GPU"], bundle.table("results")
        assert (split.train & (results["hardware"] == "Nvidia H100 GPU")).sum() == SUPPORT_ROWS

    def test_throughput_of_one_request_in_a_batch_is_flagged(self, bundle):
        results = bundle.table("results")
        wrong = (results["framework"] == "llama.cpp") & (results["batch_size"] > 1)
        assert contradictory(results).tolist() == wrong.tolist()
        assert counts(LlmInferenceBench().flags(bundle))["conflict"] == wrong.sum()


class TestSplitwise(DatasetContract):
    cls = Splitwise

    def test_a_pair_of_model_and_hardware_is_held_out(self, bundle):
        splits = {s.protocol: s for s in Splitwise().splits(bundle)}
        held_out = bundle.table("perf_model")[
            splits["unseen_setup/bloom-176b x h100-80gb"].held_out
        ]
        assert set(held_out["model"]) == {"bloom-176b"}
        assert set(held_out["hardware"]) == {"h100-80gb"}


def test_power_that_was_not_measured_is_missing():
    runs = Splitwise().tidy(Splitwise().packaged())["perf_model"]
    measured = runs["hardware"].eq("a100-80gb")
    for name in ("peak_power_frac_tdp", "avg_power_frac_tdp"):
        assert runs[name].isna()[~measured].all()
        assert (runs[name].dropna() > 0).all()


def test_every_row_of_llama_cpp_with_a_batch_contradicts_itself_and_no_other():
    results = LlmInferenceBench().tidy(LlmInferenceBench().packaged())["results"]
    batches = results["framework"].eq("llama.cpp") & results["batch_size"].gt(1)
    pd.testing.assert_series_equal(
        pd.Series(contradictory(results)), batches, check_names=False, check_index=False
    )


@pytest.mark.parametrize("cls", [LlmInferenceBench, Splitwise, LlmTraces, LlmdTraces])
def test_the_packaged_rows_are_valid(cls):
    tables = cls().tidy(cls().packaged())
    cls().validate(tables)
    raw = cls().packaged()
    for name, frame in tables.items():
        assert f"`{name}` ({len(frame):,}" in raw.text("README.md")


def test_arrivals_never_go_back():
    traces = LlmTraces().tidy(LlmTraces().packaged())
    for name in ("splitwise_code", "splitwise_conv"):
        assert traces[name]["arrived_at"].is_monotonic_increasing
    for _, trace in traces["apex_traces"].groupby(["tokenizer_family", "trace"]):
        assert trace["arrival_offset_ns"].is_monotonic_increasing


@pytest.mark.parametrize("cls", [LlmTraces, LlmdTraces])
def test_traces_are_valid_and_have_no_split(cls, tmp_path):
    raw = tiny_upstream(cls.name, tmp_path / "upstream")
    tables = cls().tidy(raw)
    cls().validate(tables)
    bundle = Bundle.write(tmp_path / "bundle", cls.name, tables)
    assert cls().splits(bundle) == []
    assert cls().flags(bundle).empty
