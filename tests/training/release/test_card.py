"""A card says all that its data holds, and the same data makes the same card."""

from dataclasses import replace

import pytest

from forerun.models.artifact.training_record import TrainingRecord
from forerun.training.published.figures import published_for
from forerun.training.release.card import Card, training_datasets_of
from forerun.training.scores.errors import score
from forerun.training.tracking.runs import versions_of

TASKS = [
    {
        "task": f"unseen_device/{part}",
        "device": device,
        "metric": "latency_ms",
        **score([1.0, 2.0, 4.0], [1.1, 2.0, 4.4], [0.5, 1.0, 2.0], [2.0, 4.0, 8.0]),
        "baselines": {"roofline": roofline, "published_neusight": None},
    }
    for part, device, roofline in (("bmm", "a100-80", 41.25), ("e2e", None, 27.0))
]
CARD = Card(
    title="forerun predictors",
    answers=["latency of networks", "power of kernels"],
    trained_on=[
        ("neusight", "327,919", "t4, v100", f"`{'d' * 16}`", "sitar-lab/NeuSight, MIT"),
    ],
    evaluations=[{"dataset": "neusight", "tasks": TASKS}],
    limits=["no multi-GPU runs"],
    command="forerun train --output models/pretrained",
    created="2026-11-20",
    commit="a" * 40,
    versions={"numpy": "2.4.6", "lightgbm": "4.7.0"},
)


def tables(text):
    blocks = [b for b in text.split("\n\n") if b.startswith("|")]
    return [[line.strip("| ").split(" | ") for line in block.splitlines()] for block in blocks]


def test_the_same_data_makes_the_same_card():
    shuffled = replace(CARD, versions=dict(reversed(CARD.versions.items())))
    assert CARD.markdown() == shuffled.markdown()


@pytest.mark.parametrize(
    "said",
    ["latency of networks", "327,919", "t4, v100", f"`{'d' * 16}`", "sitar-lab/NeuSight, MIT",
     "no multi-GPU runs", "forerun train --output models/pretrained", "2026-11-20", "a" * 40,
     "lightgbm 4.7.0"],
)  # fmt: skip
def test_a_card_says_what_its_data_holds(said):
    assert said in CARD.markdown()


def test_our_scores_are_listed_with_every_baseline():
    (table,) = (t for t in tables(CARD.markdown()) if "within 10 %" in t[0])
    bmm = dict(zip(table[0], table[2], strict=True))
    assert bmm["MAPE"] == "**6.7 %**"
    assert bmm["MAPE of roofline"] == "41.2 %"
    assert bmm["MAPE of published neusight"] == "–", "a score that does not apply"
    assert (bmm["device"], table[3][1]) == ("a100-80", "all")


def test_errors_of_a_share_stand_on_their_own_scale_with_the_noise_of_repeats():
    rows = [
        {**TASKS[0], "score": "mae", "predictor": name, "mae": error, "mae_of_repeats": 0.0986}
        | {"auc_below_0.9": 0.82, "baselines": {"program_mean": 29.3}, "mae_program_mean": 0.1572}
        for name, error in (("colocation_boost", 0.1375), ("colocation_network", 0.1444))
    ]
    text = replace(CARD, evaluations=[{"dataset": "contention", "tasks": rows}]).markdown()
    (table,) = (t for t in tables(text) if "predictor" in t[0])
    one, other = (dict(zip(table[0], row, strict=True)) for row in table[2:])
    assert (one["predictor"], one["error"]) == ("`colocation_boost`", "**0.138**")
    assert (other["predictor"], other["error"]) == ("`colocation_network`", "**0.144**")
    assert (one["repeats"], one["program mean"]) == ("0.099", "0.157")
    assert not [t for t in tables(text) if "within 10 %" in t[0]]


def test_a_stored_evaluation_without_the_error_of_a_share_has_no_figure_for_it():
    task = {**TASKS[0], "score": "mae", "predictor": "whole", "mae_of_repeats": 0.0986}
    text = replace(CARD, evaluations=[{"dataset": "contention", "tasks": [task]}]).markdown()
    (table,) = (t for t in tables(text) if "repeats" in t[0])
    own = dict(zip(table[0], table[2], strict=True))
    assert (own["error"], own["repeats"]) == ("**–**", "0.099")


def test_every_published_figure_on_the_dataset_is_cited():
    text = CARD.markdown()
    for figure in published_for("neusight"):
        assert f"| {figure.system} | {figure.task} | {figure.value:.1f} %" in text
        assert figure.citation in text


def test_calibration_is_shown_where_there_are_intervals():
    (table,) = (t for t in tables(CARD.markdown()) if "inside the interval" in t[0])
    assert [row[-2:] for row in table[2:]] == [["100.0 %", "4.00"]] * 2
    bare = {**TASKS[0], "coverage_90": None}
    without = replace(CARD, evaluations=[{"dataset": "neusight", "tasks": [bare]}])
    assert "inside the interval" not in without.markdown()


def test_every_table_is_a_table_whatever_its_cells_hold():
    odd = replace(CARD, trained_on=[("a|b", "1", "", "d", "two\nlines")])
    for table in tables(odd.markdown().replace("\\|", "/")):
        assert {len(row) for row in table} == {len(table[0])}


def test_a_card_of_nothing_says_so():
    empty = Card("Empty", [], [], [], [], "true", "2000-01-01").markdown()
    assert empty.count("None.") == 4
    assert "no known commit" in empty


def test_datasets_are_read_from_the_training_record():
    record = TrainingRecord(
        {"timm_bench": "b", "neusight": "a"},
        {"neusight": {"device": ["p4", "t4"]}},
        {"neusight": 5},
    )
    first, second = training_datasets_of(record, {"neusight": "MIT"})
    assert first == ("neusight", "5", "p4, t4", "`a`", "MIT")
    assert second == ("timm_bench", "–", "–", "`b`", "")


def test_versions_of_packages_that_are_not_there_are_left_out():
    assert set(versions_of(["numpy", "no-such-package"])) == {"numpy"}
