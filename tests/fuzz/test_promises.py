"""A broken promise is found: the checks of fuzzing are no formality."""

import json

import pytest

from forerun.service.problems import MEDIA_TYPE, too_large
from tests.fuzz.promises import broken

PATH = "/v1/predict"
GOOD = {"value": 2.0, "low": 1.0, "high": 3.0, "unit": "ms", "coverage": 0.9}


def of_answer(**changes) -> list[str]:
    answer = {"metrics": {"latency_ms": GOOD | changes}}
    return broken(PATH, 200, "application/json", json.dumps(answer).encode())


def of_refusal(**changes) -> list[str]:
    problem = too_large(PATH, 16).model_dump() | changes
    return broken(PATH, 413, MEDIA_TYPE, json.dumps(problem).encode())


def test_a_sound_answer_and_a_sound_refusal_break_nothing():
    assert of_answer() == of_refusal() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"value": float("nan")},
        {"high": float("inf")},
        {"value": 0.0},
        {"low": 2.5},
        {"high": 1.5},
        {"low": -1.0},
        {"value": 0.0009, "low": 0.0001},
    ],
)
def test_a_number_that_cannot_be_is_found(changes):
    assert of_answer(**changes)


def test_an_exponent_beyond_any_number_is_found():
    assert broken(PATH, 200, "application/json", b'{"a": 1e999}')


@pytest.mark.parametrize(
    "changes",
    [
        {"detail": ""},
        {"detail": "two\nlines"},
        {"detail": "long " * 1000},
        {"detail": 'Traceback: File "x"'},
        {"title": ""},
        {"status": 400},
    ],
)
def test_a_refusal_that_does_not_explain_itself_is_found(changes):
    assert of_refusal(**changes)


@pytest.mark.parametrize(
    ("status", "wrong"), [(500, True), (502, True), (503, False), (507, False)]
)
def test_a_fault_is_found_and_a_lack_of_room_is_none(status, wrong):
    problem = too_large(PATH, 16).model_dump() | {"status": status}
    assert bool(broken(PATH, status, MEDIA_TYPE, json.dumps(problem).encode())) is wrong


def test_a_refusal_in_another_format_is_found():
    assert broken(PATH, 404, "text/plain", b"not found")


def test_a_page_that_shows_no_number_is_found():
    assert broken("/", 200, "text/html; charset=utf-8", b"<td>nan</td>")
    assert not broken("/", 200, "text/html; charset=utf-8", b"<td>1.5</td>")


def test_an_item_of_a_batch_is_a_refusal_too():
    items = {"items": [too_large(PATH, 16).model_dump() | {"detail": "a\nb"}]}
    assert broken("/v1/predict:batch", 200, "application/json", json.dumps(items).encode())
