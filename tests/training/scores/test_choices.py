"""Choosing the least: scored by what the choice measures, only where there is a choice."""

import numpy as np
import pytest

from forerun.training.scores.errors import Alternatives, choice_scores

GROUPS = np.array(["a"] * 3 + ["b"] * 3 + ["c"] * 2)
MEASURED = np.array([1.0, 2.0, 3.0, 1.01, 1.0, 4.0, 1.0, 9.0])


def test_a_choice_within_two_percent_counts_and_pairs_are_no_choice():
    predicted = np.array([3.0, 1.0, 2.0, 1.0, 2.0, 3.0, 9.0, 1.0])
    found = choice_scores(MEASURED, predicted, Alternatives(GROUPS, {"truth": MEASURED}))
    assert found["choices"] == 2
    assert found["chosen_within_2pct"] == 50.0
    assert found["chosen_excess"] == pytest.approx(100.0 * (1.0 + 0.01) / 2)
    assert found["chosen_by_rule"] == {"truth": 100.0}


def test_rows_without_an_answer_are_not_chosen():
    predicted = np.array([np.nan, 1.0, 2.0, np.nan, np.nan, np.nan, 1.0, 1.0])
    found = choice_scores(MEASURED, predicted, Alternatives(GROUPS))
    assert found["choices"] == 0
    assert found["chosen_within_2pct"] is None


def test_alternatives_are_taken_with_their_rules():
    whole = Alternatives(GROUPS, {"truth": MEASURED})
    part = whole.take(GROUPS == "b")
    assert set(part.groups) == {"b"}
    np.testing.assert_array_equal(part.rivals["truth"], MEASURED[3:6])
