"""Breakdown by groups of rows: grouping keys, scores within each group, and the worst decile."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.training.evaluation.breakdown import (
    FEWEST_ROWS,
    answer_table,
    broken_down,
    conditional_coverage,
    row_keys,
    worst_decile,
    write_answers,
)
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.protocols.protocol import Task

GRAPH = OperatorGraph((Operator("elementwise", "relu", ((8, 8),), ((8, 8),)),))
DEVICE = DeviceCatalog.load().get("a10")


def rows(families, batches=None) -> Measurements:
    batches = [64] * len(families) if batches is None else batches
    queries = [Query(Network(GRAPH, batch, "amp"), DEVICE) for batch in batches]
    measured = np.ones(len(families))
    return Measurements(queries, {"latency_ms": measured}, {"family": np.array(families)})


def task_predictions(held_out, predicted, half_width=0.5, name="unseen/x") -> TaskPredictions:
    predicted = np.asarray(predicted, float)
    columns = {
        "measured": held_out.values["latency_ms"],
        "predicted": predicted,
        "low": predicted * (1 - half_width),
        "high": predicted * (1 + half_width),
    }
    flags = np.ones(len(held_out), dtype=np.bool_)
    task = Task(name, "latency_ms", held_out)
    return TaskPredictions(task, 0, columns, {}, "mine", in_domain=flags)


def test_a_row_has_the_keys_of_its_dataset_and_of_its_query():
    keys = row_keys(rows(["vit", "resnet", "resnet"], [1, 64, 100]))
    assert keys["batch"].tolist() == ["1", "64-127", "64-127"]
    assert keys["batch_size"].tolist() == ["1", "64", "100"]
    assert keys["family"].tolist() == ["vit", "resnet", "resnet"]
    assert set(keys["device"]) == {DEVICE.name}
    assert set(keys["precision"]) == {"amp"}
    assert set(keys["runtime"]) == {"eager"}


def test_every_answer_is_a_row_of_the_file(tmp_path):
    held_out = rows(["vit", "resnet"])
    one = task_predictions(held_out, [1.1, np.nan])
    write_answers(tmp_path / "new" / "rows.parquet", [one])
    table = pd.read_parquet(tmp_path / "new" / "rows.parquet")
    expected = {"task", "device", "family", "measured", "predicted", "low", "high", "in_domain"}
    assert expected <= set(table)
    assert table["predicted"].isna().tolist() == [False, True], "what is not answered is missing"
    write_answers(tmp_path / "rows.csv", [one])
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 2
    with pytest.raises(InputError, match=r"\.parquet or \.csv, not 'rows\.xls'"):
        write_answers(tmp_path / "rows.xls", [one])


def test_scores_of_a_group_only_depend_on_its_rows():
    held_out = rows(["vit"] * 3 + ["resnet"])
    (task,) = broken_down([task_predictions(held_out, [1.2, 1.2, 1.2, 4.0])], ["family"])
    groups = {group["group"]["family"]: group for group in task["groups"]}
    assert groups["vit"]["mape"] == pytest.approx(20.0)
    assert groups["vit"]["coverage_90"] == pytest.approx(100.0)
    assert groups["resnet"]["mape"] == pytest.approx(300.0)
    assert groups["resnet"]["coverage_90"] == pytest.approx(0.0)
    assert groups["resnet"]["mean_interval_ratio"] == pytest.approx(3.0)
    assert sum(group["n"] for group in task["groups"]) == 4


def test_folds_of_one_task_are_pooled_and_two_keys_make_pairs():
    one, two = rows(["vit", "vit"], [1, 2]), rows(["vit"], [1])
    (task,) = broken_down(
        [task_predictions(one, [1, 1]), task_predictions(two, [1])], ["family", "batch"]
    )
    assert [(g["group"]["batch"], g["n"]) for g in task["groups"]] == [("1", 2), ("2-3", 1)]


def test_a_key_that_no_row_has_is_refused_with_the_available_ones():
    with pytest.raises(InputError, match=r"'colour'; there are .*family"):
        broken_down([task_predictions(rows(["vit"]), [1.0])], ["colour"])


def test_rows_without_an_interval_cannot_be_grouped_by_it():
    held_out = rows(["vit"])
    one = task_predictions(held_out, [1.0])
    one = TaskPredictions(one.task, 0, one.columns | {"low": np.array([np.nan])}, {}, "mine")
    with pytest.raises(InputError, match="No answer has an interval"):
        broken_down([one], ["interval"])


def test_the_worst_decile_is_the_least_covered_tenth_of_groups_with_enough_rows():
    groups = [
        {"group": {"family": str(n)}, "n": 50, "coverage_90": 90.0 + n / 10, "mape": 5.0}
        for n in range(19)
    ]
    groups.append({"group": {"family": "odd"}, "n": 50, "coverage_90": 40.0, "mape": 60.0})
    tiny = {"group": {"family": "few"}, "n": FEWEST_ROWS - 1, "coverage_90": 0.0, "mape": 99.0}
    worst = worst_decile([*groups, tiny])
    assert worst["groups"] == 20
    assert worst["coverage"] == pytest.approx((40.0 + 90.0) / 2)
    assert worst["coverage_group"] == {"family": "odd"}
    assert worst["mape"] == pytest.approx((60.0 + 5.0) / 2)
    assert worst_decile([tiny])["coverage"] is None


def test_conditional_coverage_sees_a_family_that_the_mean_hides():
    good, bad = ["vit"] * 90, ["odd"] * 20
    one = task_predictions(rows(good + bad), [1.0] * 90 + [9.0] * 20)
    found = {row["by"]: row for row in conditional_coverage([one])}
    assert found["family"]["coverage_90"] == pytest.approx(100 * 90 / 110)
    assert found["family"]["coverage"] == pytest.approx(0.0)
    assert found["family"]["coverage_group"] == {"family": "odd"}
    assert "batch" not in found, "one group alone is no breakdown"


def test_intervals_are_grouped_by_size():
    held_out = rows(["vit"] * 200)
    narrow = task_predictions(held_out.take(np.arange(200) < 100), [1.0] * 100, 0.1)
    wide = task_predictions(held_out.take(np.arange(200) >= 100), [1.3] * 100, 0.2)
    (task,) = broken_down([narrow, wide], ["interval"])
    assert sorted(group["coverage_90"] for group in task["groups"]) == [0.0, 100.0]


def test_answers_in_a_table_keep_their_order():
    one = task_predictions(rows(["b", "a", "c"]), [1.0, 2.0, 3.0])
    assert answer_table([one])["predicted"].tolist() == [1.0, 2.0, 3.0]
