"""Operators of Frontier, LLMServingSim, APEX and Vidur keep the contract of datasets."""

import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.apex import Apex
from forerun.data.datasets.language_models.frontier_sim import FrontierSim
from forerun.data.datasets.language_models.llmservingsim import LlmServingSim
from forerun.data.datasets.language_models.vidur import OPS, Vidur
from tests.contracts.dataset_contract import DatasetContract


class TestFrontierSim(DatasetContract):
    cls = FrontierSim

    def test_narrower_links_are_no_new_chip(self, bundle, tmp_path):
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

    def test_replicas_and_traces_of_a_deployment_are_held_out_with_it(self, bundle):
        runs = bundle.table("e2e_h100x8")
        splits = {s.protocol: s for s in Apex().splits(bundle)}
        held_out = splits["unseen_deployment/vllm x some/model x fp16/bf16 x 8TP"].held_out
        assert set(runs["layout"][held_out]) == {"8TP"}
        assert set(runs["trace"][held_out]) == {"lmsys_025", "creation_025"}
        assert set(runs["trace"][splits["unseen_trace/lmsys_025"].held_out]) == {"lmsys_025"}


class TestVidur(DatasetContract):
    cls = Vidur

    def test_wide_columns_become_rows_and_operators_that_a_model_lacks_have_none(self, tables):
        ops = tables[OPS]
        assert ops.groupby("model", observed=True)["op"].agg(set).to_dict() == {
            "some/model": {"emb", "add"},
            "other/small": {"emb"},
        }
        first = ops.iloc[0]
        assert (first["device"], first["model"], first["op"]) == ("a100", "other/small", "emb")
        statistics = first[[f"{n}_ms" for n in ("min", "max", "mean", "median", "std")]]
        assert statistics.tolist() == pytest.approx([0.1, 0.11, 0.12, 0.13, 0.14])

    def test_a_random_tenth_has_no_query_of_an_equal_model_in_training(self, bundle, tmp_path):
        ops = bundle.table(OPS).astype({"model": "str"})
        twin = pd.concat([ops, ops.assign(model="some/twin")], ignore_index=True)
        both = Bundle.write(tmp_path / "twins", "vidur", {OPS: twin})
        (split,) = [s for s in Vidur().splits(both) if s.protocol == f"random_queries/{OPS}"]
        split.check(twin)
        assert split.held_out[: len(ops)].tolist() == split.held_out[len(ops) :].tolist()

    def test_the_published_transfer_is_one_of_the_splits(self, bundle):
        splits = {s.protocol: s for s in Vidur().splits(bundle)}
        split, device = splits[f"unseen_device/{OPS}/h100"], bundle.table(OPS)["device"]
        assert set(device[split.train]) == {"a100", "a40"}
        assert set(device[split.held_out]) == {"h100"}


@pytest.mark.parametrize(
    ("cls", "rows"),
    [
        (FrontierSim, {"attention": 102_457, "linear": 34_571, "moe": 31_457}),
        (LlmServingSim, {"attention": 116_184, "v0_attention": 102_869, "v0_layers": 45_496}),
        (Apex, {"gemm_v100": 92_191, "comm": 1_387, "e2e_h100x8": 58}),
    ],
)
def test_the_packaged_rows_are_valid_and_counted_in_the_datasheet(cls, rows):
    raw = cls().packaged()
    tables = cls().tidy(raw)
    cls().validate(tables)
    for name, count in rows.items():
        assert len(tables[name]) == count
        assert f"{count:,}" in raw.text("README.md")
