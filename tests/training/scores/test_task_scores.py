"""Extra scores of some tasks: choices, relative speeds and capacities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.measurements import Measurements
from forerun.training.evaluation.evaluate import rows
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.protocols.protocol import Task
from forerun.training.scores.task_scores import (
    Capacity,
    Choices,
    RelativeSpeed,
    auc,
    class_errors,
    noise,
)

KEYS = np.array(["a", "a", "a"])

GROUPS = np.array(["a"] * 3 + ["b"] * 3 + ["c"] * 2)
MEASURED = np.array([1.0, 2.0, 3.0, 1.01, 1.0, 4.0, 1.0, 9.0])


def chosen(predicted, rivals=()):
    columns = {"measured": MEASURED, "predicted": predicted}
    return Choices(GROUPS, dict(rivals)).of(columns, {})


def test_a_choice_within_two_percent_counts_and_pairs_are_not_scored():
    predicted = np.array([3.0, 1.0, 2.0, 1.0, 2.0, 3.0, 9.0, 1.0])
    found = chosen(predicted, {"truth": MEASURED})
    assert found["choices"] == 2
    assert found["chosen_within_2pct"] == 50.0
    assert found["chosen_excess"] == pytest.approx(100.0 * (1.0 + 0.01) / 2)
    assert found["chosen_by_rule"] == {"truth": 100.0}


def test_rows_without_an_answer_are_not_chosen():
    predicted = np.array([np.nan, 1.0, 2.0, np.nan, np.nan, np.nan, 1.0, 1.0])
    found = chosen(predicted)
    assert found["choices"] == 0
    assert found["chosen_within_2pct"] is None


def test_taking_rows_keeps_the_rules_aligned():
    whole = Choices(GROUPS, {"truth": MEASURED})
    part = whole.take(GROUPS == "b")
    assert set(part.groups) == {"b"}
    np.testing.assert_array_equal(part.rivals["truth"], MEASURED[3:6])


def test_the_area_under_the_curve_is_the_probability_of_ranking_a_pair_correctly():
    positive = np.array([True, False, True, False])
    assert auc(positive, np.array([4.0, 1.0, 3.0, 2.0])) == 1.0
    assert auc(positive, np.array([1.0, 4.0, 2.0, 3.0])) == 0.0
    assert auc(positive, np.ones(4)) == 0.5
    assert auc(np.ones(4, dtype=bool), np.ones(4)) is None


def test_relative_speed_is_scored_on_its_own_scale_with_noise_and_baselines():
    measured, answers = np.array([0.5, 0.7, 1.0, 3.0]), np.array([0.6, 0.6, 1.0, 1.3])
    repeats = np.array(["a", "a", "b", "c"])
    columns = {"measured": measured, "predicted": answers, "low": 0.9 * answers}
    found = RelativeSpeed(repeats).of(columns, {"mean": np.ones(4)})
    assert found["mae"] == pytest.approx(1.9 / 4)
    assert found["mae_to_1.2"] == pytest.approx(0.2 / 4)
    assert found["mae_of_repeats"] == pytest.approx(0.1 * np.sqrt(2.0))
    assert found["mae_mean"] == pytest.approx(2.8 / 4)
    assert found["auc_below_0.8"] == 1.0
    assert found["repeated_rows"] == 2


def test_a_class_is_scored_by_its_false_alarms_and_its_misses():
    measured = np.array([0.5, 0.6, 0.7, 0.8, 0.95, 1.0])
    answers = np.array([0.5, 0.95, 0.6, 1.0, 0.8, 1.0])
    assert class_errors(measured, answers) == (50.0, 50.0)
    assert class_errors(np.ones(3), np.ones(3)) == (0.0, None)
    low = np.array([0.4, np.nan, 0.5, np.nan, 0.7, np.nan])
    columns = {"measured": measured, "predicted": answers, "low": low}
    found = RelativeSpeed(np.arange(6).astype(str)).of(columns, {})
    assert (found["false_alarms"], found["misses"]) == (50.0, 50.0)
    assert found["share_with_interval"] == 50.0
    assert (found["false_alarms_of_class"], found["misses_of_class"]) == (0.0, 100.0)
    assert found["repeated_rows"] == 0


def test_the_noise_floor_is_the_error_of_a_perfect_prediction():
    draw = np.random.default_rng(0)
    truth = np.repeat(draw.uniform(0.2, 1.0, 4_000), 3)
    values = truth + 0.05 * draw.standard_normal(len(truth))
    keys = np.repeat(np.arange(4_000), 3).astype(np.str_)
    once = np.r_[keys, ["alone"]]
    oracle = np.abs(values - truth).mean()
    assert noise(values, keys) == pytest.approx(oracle, rel=0.03)
    assert noise(np.r_[values, 9.0], once) == noise(values, keys)
    assert noise(values[::3], keys[::3]) is None


positive = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(positive, positive, st.floats(1.0, 3.0)), min_size=1, max_size=30))
def test_capacity_scores_match_a_manual_count(rows):
    measured, predicted, reach = (np.array(column) for column in zip(*rows, strict=True))
    named = {"measured": measured, "predicted": predicted, "high": predicted * reach}
    found = Capacity(100.0).of(named, {})
    counts = {"bin_accuracy": 0, "under_predicted": 0, "below_high": 0}
    for truth, answer, factor in rows:
        counts["bin_accuracy"] += int(truth / 100.0) == int(answer / 100.0)
        counts["under_predicted"] += answer < truth
        counts["below_high"] += truth <= answer * factor
    for name, count in counts.items():
        assert found[name] == pytest.approx(100.0 * count / len(rows))
    over = np.mean([100.0 * (a * f / t - 1.0) for t, a, f in rows])
    assert found["over_allocation"] == pytest.approx(over, rel=1e-6, abs=1e-6)


def test_capacity_without_an_interval_is_scored_by_its_prediction_only():
    pair, high = np.array([100.0, 100.0]), np.array([110.0, np.nan])
    columns = {"measured": pair, "predicted": np.array([90.0, 120.0]), "high": high}
    found = Capacity(50.0).of(columns, {})
    assert (found["below_high"], found["over_allocation"]) == (100.0, pytest.approx(10.0))
    assert found["under_predicted"] == 50.0


def test_rows_of_folds_are_scored_together_and_choices_fold_by_fold():
    one, two = (
        TaskPredictions(
            task, 0, dict.fromkeys(("measured", "predicted", "low", "high"), own), {}, "x"
        )
        for own in (np.array([0.5, 0.7, 0.5]), np.array([0.6, 0.8, 0.8]))
        for task in [
            Task(
                "a/b",
                "p_cpu",
                Measurements([], {}),
                scores=[Capacity(0.1), RelativeSpeed(KEYS), Choices(KEYS)],
            )
        ]
    )
    (row,) = rows([one, two])
    assert (row["bin_accuracy"], row["score"]) == (100.0, "mae")
    assert (row["repeated_rows"], row["choices"]) == (6.0, 1.0)
