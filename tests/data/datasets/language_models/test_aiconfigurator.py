"""Timed operators: what a query is, what is held out together, and what a message weighs."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.aiconfigurator import (
    AiConfigurator,
    message_bytes,
)
from forerun.data.datasets.language_models.operator_splits import FEW_ROWS
from tests.contracts.dataset_contract import DatasetContract


class TestAiConfigurator(DatasetContract):
    cls = AiConfigurator

    def test_one_generation_is_held_out_with_all_its_systems(self, bundle):
        splits = {s.protocol: s for s in AiConfigurator().splits(bundle)}
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

    def test_a_support_set_has_fifty_queries_of_the_system_and_repeats_of_none_are_held_out(
        self, bundle, tmp_path
    ):
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

    def test_an_element_of_unknown_width_is_no_guess(self):
        with pytest.raises(KeyError, match="fp6"):
            message_bytes(pd.DataFrame({"nccl_dtype": ["fp6"], "message_size_elems": [1]}))


def test_half_and_int8_end_at_the_same_number_of_bytes():
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
