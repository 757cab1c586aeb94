"""The comparison of answers sees what it must see, and says what moved and by how much."""

import copy
import json

import pytest

from tests.golden.compare import MOST_LINES, compared, report
from tests.golden.stored import rounded, text_of

STORED = {
    "one": {
        "metrics": {"latency_ms": {"value": 2.0, "low": 1.5, "high": 3.0, "coverage": 0.9}},
        "limits": ["power: not measured on this device", "batch is 9; the training set has 1 to 2"],
        "in_domain": False,
        "breakdown_ms": {"conv": 1.25, "host": 0.75},
    },
    "two": {"metrics": {"latency_ms": None}, "limits": [], "in_domain": True},
}


@pytest.fixture
def new():
    """Today's answers, to be changed."""
    return copy.deepcopy(STORED)


def latency(answers):
    return answers["one"]["metrics"]["latency_ms"]


def test_equal_answers_do_not_differ(new):
    found = compared("networks", STORED, new)
    assert found.differences == ()
    assert (found.answers, found.numbers) == (2, 6)
    assert report([found]).endswith("in all: 2 answers, 6 numbers, none moved")


@pytest.mark.parametrize("field", ["value", "low", "high", "coverage"])
def test_one_percent_is_a_difference_and_is_said(new, field):
    latency(new)[field] *= 1.01
    (one,) = compared("networks", STORED, new).differences
    assert one.change == pytest.approx(0.01)
    text = report([compared("networks", STORED, new)])
    assert f"networks: one metrics/latency_ms/{field}: " in text
    assert "(+1 %)" in text
    assert "1 of 6 numbers moved (relative change: median 1 %, largest 1 %)" in text


def test_the_tolerance_separates_rounding_from_a_change(new):
    latency(new)["value"] *= 1 + 5e-7
    assert not compared("networks", STORED, new).differences
    assert not compared("networks", STORED, rounded(new)).differences
    latency(new)["value"] *= 1 + 5e-6
    assert compared("networks", STORED, new).differences
    assert not compared("networks", STORED, new, tolerance=1e-3).differences


def test_a_time_next_to_zero_may_move_by_less_than_a_picosecond(new):
    stored = copy.deepcopy(STORED)
    stored["one"]["breakdown_ms"]["host"] = 2.2772007e-08
    new["one"]["breakdown_ms"]["host"] = 2.277156e-08
    assert not compared("networks", stored, new).differences
    new["one"]["breakdown_ms"]["host"] = 2.5e-08
    assert compared("networks", stored, new).differences


def test_ends_of_intervals_may_have_a_tolerance_of_their_own(new):
    for field in ("value", "low"):
        latency(new)[field] *= 1.01
    (one,) = compared("refits", STORED, new, 5e-3, 5e-2).differences
    assert one.field == "metrics/latency_ms/value"


def test_a_number_that_was_zero_is_a_difference_when_it_is_not(new):
    before = {"one": {"util_bram": 0.0}}
    (one,) = compared("designs", before, {"one": {"util_bram": 1e-9}}).differences
    assert one.change == float("inf")
    assert not compared("designs", before, before).differences


def test_a_lost_limit_and_a_new_one_are_named(new):
    new["one"]["limits"][0] = "power: extrapolated"
    lost, added = compared("networks", STORED, new).differences
    assert (lost.sort, lost.before) == ("line lost", "power: not measured on this device")
    assert (added.sort, added.after) == ("line new", "power: extrapolated")
    text = report([compared("networks", STORED, new)])
    assert "line lost: power: not measured on this device" in text
    assert "1 x line lost; 1 x line new" in text


def test_limits_in_another_order_and_said_twice_are_differences(new):
    new["one"]["limits"].reverse()
    assert len(compared("networks", STORED, new).differences) == 1
    new["one"]["limits"] = STORED["one"]["limits"] * 2
    assert len(compared("networks", STORED, new).differences) == 1


def test_a_missing_answer_and_one_that_was_not_stored_are_named(new):
    new["three"] = new.pop("two")
    lost, added = compared("networks", STORED, new).differences
    assert (lost.question, lost.sort) == ("two", "answer lost")
    assert (added.question, added.sort) == ("three", "answer new")


def test_a_missing_field_a_new_one_and_a_changed_word_are_differences(new):
    del new["one"]["breakdown_ms"]["host"]
    new["one"]["in_domain"] = True
    new["two"]["metrics"]["latency_ms"] = 4.0
    new["two"]["fits"] = None
    fields = [one.field for one in compared("networks", STORED, new).differences]
    assert fields == ["in_domain", "breakdown_ms/host", "metrics/latency_ms", "fits"]


def test_a_long_report_is_cut_with_the_largest_first_and_the_summary_whole():
    before = {f"question {n}": {"value": 1.0} for n in range(200)}
    after = {f"question {n}": {"value": 1.0 + n / 1000} for n in range(200)}
    lines = report([compared("networks", before, after)]).splitlines()
    assert len(lines) == MOST_LINES + 3
    assert lines[0].startswith("networks: question 199 value")
    assert lines[MOST_LINES] == "... and 169 further differences"
    assert "199 of 200 numbers moved (relative change: median 10 %, largest 19.9 %)" in lines[-2]


def test_stored_text_is_json_with_a_line_for_each_question():
    text = text_of(rounded({"a": {"value": 0.123456789123}, "b": [1.0, True, None, "x"]}))
    assert json.loads(text) == {"a": {"value": 0.12345679}, "b": [1, True, None, "x"]}
    assert len(text.splitlines()) == 4
