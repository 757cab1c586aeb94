"""MLPerf's runs come with the package, and systems follow from them by rules."""

import pandas as pd
import pytest

from forerun.data.datasets.language_models.mlperf_training import MlperfTraining, systems
from tests.contracts.tiny_mlperf_training import AMD, run_rows, run_table
from tests.data.datasets.packaged_contract import PackagedContract


class TestMlperfTraining(PackagedContract):
    cls = MlperfTraining
    reference_table = "runs"

    def test_each_declared_layout_is_of_a_system_and_fits_its_gpus_and_batch(self, packaged):
        found = systems(packaged["runs"])
        known = {tuple(own[:3]) for own in MlperfTraining.facts["layouts"]}
        assert known <= {
            *found[["benchmark", "submitter", "system"]].itertuples(index=False, name=None)
        }
        assert set(found["reason"]) == {"", "layout or format is not said"}
        used = found[found["reason"] == ""]
        degrees = used["tensor"] * used["context"] * used["pipeline"]
        assert (used["devices"] % degrees == 0).all()
        assert len(used) == 70


def test_a_system_is_the_median_of_its_runs_and_says_why_it_is_left_out():
    found = systems(run_rows()).set_index(["submitter", "system"])
    assert found.loc[("One", "a"), "seconds"].tolist() == [1.1, 1.6]
    why = found["reason"].droplevel(0)
    assert why[why != ""].to_dict() == {
        "e": "layout or format is not said",
        "f": "figures contradict each other",
        "g": "no time of a step",
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, {"tensor": 1, "micro_batch": 2, "precision": "fp8", "lora_rank": 0, "seconds": 1.0}),
        ({"gradient_accumulation_steps": 2.0}, {"micro_batch": 1}),
        ({"layout_from": "config_1x8x1xtp1pp1cp2_fp4.sh"}, {"context": 2, "precision": "nvfp4"}),
        # The file's own degrees count, as on Cisco's C885A, whose file is named after others.
        ({"tp": 2.0}, {"tensor": 2, "micro_batch": 4}),
        ({"layout_from": "config_tp1pp8cp1.sh"}, {"virtual_stages": 8}),
        (
            AMD,
            {
                "model": "meta-llama/Llama-2-70b-hf",
                "lora_rank": 16,
                "seconds": 2.0,
                "gpu": "mi325x",
            },
        ),
    ],
)
def test_a_run_follows_from_what_a_row_says(row, expected):
    found = systems(run_table(row)).iloc[0]
    assert {name: found[name] for name in expected} == expected


def test_a_file_that_was_read_replaces_the_guessed_one():
    named = {"submitter": "Nebius", "system": "nebius_b200_n1"}
    assert systems(run_table(named))["precision"].tolist() == ["nvfp4"]
    unread = {"submitter": "Oracle", "system": "1xBM.GPU.B200.8"}
    assert systems(run_table(unread))["reason"].tolist() == ["layout or format is not said"]
    assert pd.isna(systems(run_table({"layout_from": None}))["tensor"].iloc[0])
