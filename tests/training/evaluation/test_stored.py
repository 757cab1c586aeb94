"""What is stored of an evaluation is the same everywhere, and is read from one place."""

import json

import pytest

from forerun.training.evaluation import stored
from forerun.training.evaluation.stored import evaluations_text, read_evaluations, stored_with

MADE = [{"dataset": "toy", "seeds": 1, "tasks": [{"task": "a/x"}, {"task": "b/x"}], "cells": []}]


@pytest.fixture
def released(tmp_path, monkeypatch):
    """A released predictor with scores of its own, and a scoreboard."""
    folder = tmp_path / "released"
    folder.mkdir()
    (folder / "scores.json").write_text("[1]")
    (tmp_path / "board.json").write_text(evaluations_text(MADE))
    monkeypatch.setattr(stored, "released_artifact", lambda: folder)
    monkeypatch.setattr(stored, "scoreboard_file", lambda: tmp_path / "board.json")
    return folder


def test_what_is_written_is_read_again_and_each_task_has_a_line(tmp_path):
    file = tmp_path / "board.json"
    file.write_text(evaluations_text(MADE))
    assert read_evaluations(file) == MADE
    assert '{"task": "a/x"},\n{"task": "b/x"}' in file.read_text()
    assert read_evaluations(tmp_path / "none.json") == []


def test_the_scoreboard_holds_the_scores_of_the_released_predictor_and_of_its_copies(
    released, tmp_path
):
    copy = tmp_path / "retrained"
    copy.mkdir()
    assert stored_with(copy) == []
    (copy / "scores.json").write_bytes((released / "scores.json").read_bytes())
    assert stored_with(released) == stored_with(copy) == MADE
    (copy / "scores.json").write_text(json.dumps([{"dataset": "other"}]))
    assert stored_with(copy) == [{"dataset": "other"}]
