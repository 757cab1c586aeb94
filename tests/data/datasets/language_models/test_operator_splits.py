"""Operators, whole requests and traces of language models: queries, splits, and data errors."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.aiconfigurator import (
    AiConfigurator,
    message_bytes,
)
from forerun.data.datasets.language_models.apex import Apex
from forerun.data.datasets.language_models.frontier_sim import FrontierSim
from forerun.data.datasets.language_models.llm_inference_bench import (
    SUPPORT_ROWS,
    LlmInferenceBench,
    contradictory,
)
from forerun.data.datasets.language_models.llm_traces import LlmTraces
from forerun.data.datasets.language_models.llmd_traces import LlmdTraces
from forerun.data.datasets.language_models.llmservingsim import LlmServingSim
from forerun.data.datasets.language_models.operator_splits import FEW_ROWS
from forerun.data.datasets.language_models.splitwise import Splitwise
from forerun.data.datasets.language_models.vidur import OPS, Vidur
from forerun.data.quality import counts
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_upstream import tiny_upstream


class TestFrontierSim(DatasetContract):
    cls = FrontierSim

    def test_slower_links_do_not_make_a_new_chip(self, bundle, tmp_path):
        frame = bundle.table("attention")
        more = pd.concat([frame, frame[frame["device"] == "h800"].assign(device="h100")])
        other = Bundle.write(tmp_path / "more", "frontier_sim", {"attention": more})
        splits = {s.protocol: s for s in FrontierSim().splits(other)}
        held_out = splits["unseen_generation/attention/hopper"].held_out
        assert set(other.table("attention")["device"][held_out]) == {"h100", "h800"}


class TestLlmServingSim(DatasetContract):
    cls = LlmServingSim

    def test_a_layer_is_held_out_on_every_device(self, bundle):
        dense = bundle.table("dense")
        sites = dense["model"] + dense["layer"] + dense["tp"].astype(str)
        for split in LlmServingSim().splits(bundle):
            if split.protocol.startswith("unseen_site/dense"):
                assert set(sites[split.held_out]).isdisjoint(sites[split.train])


class TestApex(DatasetContract):
    cls = Apex

    def test_replicas_and_traces_of_a_deployment_are_held_out_with_it(self, bundle, splits):
        runs = bundle.table("e2e_h100x8")
        held_out = splits["unseen_deployment/vllm x some/model x fp16/bf16 x 8TP"].held_out
        assert set(runs["layout"][held_out]) == {"8TP"}
        assert set(runs["trace"][held_out]) == {"lmsys_025", "creation_025"}
        assert set(runs["trace"][splits["unseen_trace/lmsys_025"].held_out]) == {"lmsys_025"}


class TestVidur(DatasetContract):
    cls = Vidur

    def test_wide_columns_become_rows_and_missing_operators_have_no_row(self, tables):
        ops = tables[OPS]
        assert ops.groupby("model", observed=True)["op"].agg(set).to_dict() == {
            "some/model": {"emb", "add"},
            "other/small": {"emb"},
        }
        first = ops.iloc[0]
        assert (first["device"], first["model"], first["op"]) == ("a100", "other/small", "emb")
        statistics = first[[f"{n}_ms" for n in ("min", "max", "mean", "median", "std")]]
        assert statistics.tolist() == pytest.approx([0.1, 0.11, 0.12, 0.13, 0.14])

    def test_no_held_out_query_is_in_training_under_an_equal_model(self, bundle, tmp_path):
        ops = bundle.table(OPS).astype({"model": "str"})
        twin = pd.concat([ops, ops.assign(model="some/twin")], ignore_index=True)
        both = Bundle.write(tmp_path / "twins", "vidur", {OPS: twin})
        (split,) = [s for s in Vidur().splits(both) if s.protocol == f"random_queries/{OPS}"]
        split.check(twin)
        assert split.held_out[: len(ops)].tolist() == split.held_out[len(ops) :].tolist()

    def test_the_published_transfer_is_one_of_the_splits(self, bundle, splits):
        split, device = splits[f"unseen_device/{OPS}/h100"], bundle.table(OPS)["device"]
        assert set(device[split.train]) == {"a100", "a40"}
        assert set(device[split.held_out]) == {"h100"}


class TestAiConfigurator(DatasetContract):
    cls = AiConfigurator

    def test_one_generation_is_held_out_with_all_its_systems(self, bundle, splits):
        systems = bundle.table("gemm")["system"]
        hopper = splits["unseen_generation/gemm/hopper"]
        assert set(systems[hopper.held_out]) == {"h100_sxm", "h200_sxm"}
        assert set(systems[hopper.train]) == {"a100_sxm"}
        assert set(systems[splits["unseen_device/gemm/h100_sxm"].train]) == {"a100_sxm", "h200_sxm"}

    def test_a_site_is_held_out_on_every_system_with_all_its_batches(self, bundle):
        gemm = bundle.table("gemm")
        sites = list(zip(gemm["n"], gemm["k"], strict=True))
        folds = [s for s in AiConfigurator().splits(bundle) if "unseen_site/gemm/" in s.protocol]
        held_out = sum(split.held_out.astype(int) for split in folds)
        assert (held_out == 1).all()
        for split in folds:
            held = {site for site, out in zip(sites, split.held_out, strict=True) if out}
            assert held.isdisjoint(s for s, kept in zip(sites, split.train, strict=True) if kept)

    def test_a_support_set_has_fifty_queries_whose_repeats_are_not_held_out(self, bundle, tmp_path):
        gemm = bundle.table("gemm")
        repeated = pd.concat([gemm, gemm.assign(latency_ms=gemm["latency_ms"] * 2)])
        twice = Bundle.write(tmp_path / "twice", "aiconfigurator", {"gemm": repeated})
        splits = {s.protocol: s for s in AiConfigurator().splits(twice)}
        split, table = splits["few_rows/gemm/a100_sxm"], twice.table("gemm")
        split.check(table)
        support = table[split.train & (table["system"] == "a100_sxm")]
        assert len(support.drop_duplicates(["m", "n", "k"])) == FEW_ROWS
        assert len(support) == 2 * FEW_ROWS
        assert set(table["system"][split.held_out]) == {"a100_sxm"}
        assert not {p for p in splits if p.startswith("few_rows/nccl")}

    def test_messages_are_counted_in_elements(self):
        nccl = pd.DataFrame(
            {"nccl_dtype": ["half", "int8"], "message_size_elems": np.int32([2**28, 2**29])}
        )
        assert message_bytes(nccl).tolist() == [2.0**29, 2.0**29]
        reduced = nccl.rename(columns={"nccl_dtype": "allreduce_dtype"})
        reduced["allreduce_dtype"] = "bfloat16"
        assert message_bytes(reduced).tolist() == [2.0**29, 2.0**30]

    def test_an_unknown_element_width_is_an_error(self):
        with pytest.raises(KeyError, match="fp6"):
            message_bytes(pd.DataFrame({"nccl_dtype": ["fp6"], "message_size_elems": [1]}))


def test_the_largest_half_and_int8_messages_have_equal_bytes():
    raw = AiConfigurator().packaged()
    nccl = AiConfigurator().tidy(type(raw)(raw.folder, ("nccl.parquet",)))["nccl"]
    largest = message_bytes(nccl).reshape(-1)
    for kind in ("half", "int8"):
        assert largest[(nccl["nccl_dtype"] == kind).to_numpy()].max() == 512 * 2**20


@pytest.mark.slow
def test_the_packaged_rows_are_valid():
    dataset = AiConfigurator()
    tables = dataset.tidy(dataset.packaged())
    dataset.validate(tables)
    assert set(tables) == set(AiConfigurator.operators)
    assert len(tables["gemm"]) == 814_611
    assert set(tables["gemm"]["system"].astype(str)) == set(AiConfigurator.generations)


class TestLlmInferenceBench(DatasetContract):
    cls = LlmInferenceBench

    def test_one_accelerator_under_two_names_is_held_out_whole(self, bundle, splits):
        hardware = bundle.table("results")["hardware"]
        held_out = splits["unseen_device/Intel Max 1550"].held_out
        assert set(hardware[held_out]) == {"Intel Max 1550", "Intel PVC GPU"}

    def test_a_support_set_has_ten_rows(self, bundle, splits):
        split, results = splits["few_rows/results/Nvidia H100 GPU"], bundle.table("results")
        assert (split.train & (results["hardware"] == "Nvidia H100 GPU")).sum() == SUPPORT_ROWS

    def test_throughput_of_one_request_in_a_batch_is_flagged(self, bundle):
        results = bundle.table("results")
        wrong = (results["framework"] == "llama.cpp") & (results["batch_size"] > 1)
        assert contradictory(results).tolist() == wrong.tolist()
        assert counts(LlmInferenceBench().flags(bundle))["conflict"] == wrong.sum()


class TestSplitwise(DatasetContract):
    cls = Splitwise

    def test_a_pair_of_model_and_hardware_is_held_out(self, bundle, splits):
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


def test_exactly_the_batched_rows_of_llama_cpp_contradict_themselves():
    results = LlmInferenceBench().tidy(LlmInferenceBench().packaged())["results"]
    batches = results["framework"].eq("llama.cpp") & results["batch_size"].gt(1)
    pd.testing.assert_series_equal(
        pd.Series(contradictory(results)), batches, check_names=False, check_index=False
    )


@pytest.mark.parametrize(
    "cls",
    [
        *(FrontierSim, LlmServingSim, Apex),
        *(LlmInferenceBench, Splitwise, LlmTraces, LlmdTraces),
    ],
)
def test_the_packaged_tables_are_valid_and_counted_in_the_datasheet(cls):
    raw = cls().packaged()
    tables = cls().tidy(raw)
    cls().validate(tables)
    for name, frame in tables.items():
        assert f"`{name}` ({len(frame):,}" in raw.text("README.md")


def test_arrival_times_never_decrease():
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
