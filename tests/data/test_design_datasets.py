"""Datasets of hardware designs and of machines: what upstream says, and what protocols allow."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.ncpp import Ncpp
from forerun.data.datasets.hls_designs.hlsyn import INDUCTIVE, HLSyn
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.quality import counts
from tests.contracts.dataset_contract import DatasetContract


class TestHLSyn(DatasetContract):
    cls = HLSyn

    def test_directives_labels_and_shares_are_read(self, tables):
        designs = tables["designs"]
        row = designs[designs["pragmas_json"].str.contains('"__PARA__L1": 4,')].iloc[0]
        assert row["pragmas_json"].startswith('{"__PARA__L0": 1, "__PARA__L1": 4, "__PIPE__L0"')
        assert (row["latency_cycles"], row["util_dsp"], row["dsp"]) == (250.0, 0.04, 400.0)

    def test_a_graph_without_designs_is_left_out(self, tables):
        assert set(tables["graph_nodes"]["kernel"]) == set(tables["designs"]["kernel"])

    def test_held_out_programs_are_no_training_rows_of_their_tool(self, bundle):
        designs = bundle.table("designs")
        splits = {split.protocol: split for split in HLSyn().splits(bundle)}
        assert set(splits) == {f"{p}/{t}" for p in ("inductive", "transductive") for t in INDUCTIVE}
        for protocol, split in splits.items():
            tool = protocol.split("/")[1]
            assert set(designs["tool"][split.train | split.held_out]) == {tool}
            assert not set(designs["kernel"][split.train]) & set(INDUCTIVE[tool])

    def test_designs_without_a_label_are_kept_flagged_and_in_no_split(self, bundle):
        empty = bundle.table("designs")["latency_cycles"] == 0
        assert counts(HLSyn().flags(bundle))["unmeasured"] == empty.sum() > 0
        for split in HLSyn().splits(bundle):
            assert not (split.train | split.held_out)[empty].any()

    @pytest.mark.reference
    def test_the_splits_of_the_reference(self, reference):
        bundle = Bundle.open(reference / "hlsyn")
        splits = {split.protocol: split for split in HLSyn().splits(bundle)}
        inductive, transductive = splits["inductive/v18"], splits["transductive/v18"]
        assert inductive.held_out.sum() == 439 + 221 + 498 + 197 + 82 + 42
        assert set(bundle.table("designs")["kernel"][inductive.held_out]) == set(INDUCTIVE["v18"])
        pool = inductive.train.sum()
        assert not (transductive.train & ~inductive.train).any()
        assert transductive.held_out.sum() / pool == pytest.approx(0.15, abs=0.01)
        assert transductive.train.sum() / pool == pytest.approx(0.70, abs=0.01)


class TestWaHls4ml(DatasetContract):
    cls = WaHls4ml

    def test_a_failed_synthesis_has_no_label_and_is_in_no_split(self, bundle):
        grid = bundle.table("dense_grid_v0")
        failed = ~grid["hls_synth_success"]
        assert failed.any()
        assert grid.loc[failed, "LUT"].isna().all()
        for split in WaHls4ml().splits(bundle):
            assert not (split.train | split.held_out)[failed].any()

    def test_one_width_is_held_out_while_the_others_train(self, bundle):
        width = bundle.table("dense_grid_v0")["d_out"]
        splits = {s.protocol: s for s in WaHls4ml().splits(bundle)}
        assert set(width[splits["unseen_width/64"].held_out]) == {64}
        assert set(width[splits["unseen_width/64"].train]) == {32, 96}


class TestNcpp(DatasetContract):
    cls = Ncpp

    def test_names_of_machines_and_moments_are_left_out(self, tables):
        rows = tables["train"]
        assert not [name for name in rows if "kubernetes" in name or "@timestamp" in name]
        assert "secret" not in rows.to_csv()
        assert rows["run_id"].nunique() == 2
        assert rows["iteration"].max() == 1

    def test_test_rows_are_never_training_rows(self, bundle):
        for split in Ncpp().splits(bundle):
            assert split.table == "train" or not split.train.any()

    @pytest.mark.reference
    @pytest.mark.parametrize("part", ["train", "test"])
    def test_runs_are_those_of_the_reference(self, part, mirror, reference, tmp_path):
        theirs = Bundle.open(reference / "ncpp").table(part)
        mine = Ncpp().pull(folder=tmp_path / "ncpp", mirror=mirror).table(part)
        named = theirs.drop(columns="run_id")
        pd.testing.assert_frame_equal(mine.drop(columns="run_id"), named, check_exact=True)
        one, other = (pd.factorize(frame["run_id"])[0] for frame in (mine, theirs))
        assert np.array_equal(one, other)

    @pytest.mark.reference
    def test_every_training_suite_ran_on_one_part(self, reference):
        """Why nothing about hardware can be learned from the sample."""
        rows = Bundle.open(reference / "ncpp").table("train")
        parts = rows.groupby("RESULT.WorkloadName")["META.metadata.cscope.qdf0"].nunique()
        assert (parts == 1).all()
