"""mlenergy: upstream records, identities between columns, and held-out models."""

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.power.mlenergy import CHATS, RUNS, MlEnergy
from forerun.data.quality import counts
from tests.contracts.dataset_contract import DatasetContract


class TestMlEnergy(DatasetContract):
    cls = MlEnergy

    def test_parallel_degrees_are_stored_with_the_run(self, tables):
        runs = tables[RUNS].query("model_id == 'd/Motion' and num_gpus == 2")
        assert set(runs["ulysses_degree"]) == {2.0}
        assert runs["tensor_parallel"].isna().all()

    def test_chats_name_their_gpu_and_are_rounded_like_the_reference(self, tables):
        chats = tables[CHATS]
        assert chats["gpu"].tolist() == ["V100"] * 2 + ["A40"] * 2 + ["A100"] * 2
        assert chats["throughput_tokens_per_s"].iloc[0] == 27.5123

    def test_a_model_is_left_out_with_all_its_tasks(self, bundle, splits):
        runs = bundle.table(RUNS)
        tall = splits["leave_one_model_out/a/Tall-8B"]
        assert set(runs["task"][tall.held_out]) == {"lm-arena-chat", "gpqa"}
        assert tall.held_out.sum() + tall.train.sum() == len(runs)
        assert {p.partition("/")[0] for p in splits} == {"leave_one_model_out", "unseen_device"}

    def test_energy_against_power_and_time_is_flagged(self, bundle, tmp_path):
        runs = bundle.table(RUNS)
        runs.loc[3, "energy_per_token_joules"] *= 2.0
        changed = Bundle.write(tmp_path / "changed", "mlenergy", {RUNS: runs})
        findings = MlEnergy().flags(changed)
        assert findings["row"].tolist() == [3]
        assert findings["flag"].tolist() == ["energy_gap"]

    def test_power_is_energy_times_throughput_in_every_row(self, whole):
        runs = whole.table(RUNS)
        product = runs["energy_per_token_joules"] * runs["output_throughput_tokens_per_sec"]
        known = product.notna()
        assert known.sum() == 719
        np.testing.assert_allclose(product[known], runs["avg_power_watts"][known], rtol=1e-9)
        assert not sum(counts(MlEnergy().flags(whole)).values())
