"""The stored leaderboard is read once, and again after an evaluation."""

import os
from dataclasses import replace

import pytest

from forerun.service.stores import leaderboard as module
from forerun.service.stores.leaderboard import StoredLeaderboard
from forerun.training.leaderboard.entries import Leaderboard
from forerun.training.leaderboard.store import FOLDER, EvaluationRun, ResultStore
from tests.training.leaderboard.test_comparison import OURS


@pytest.fixture
def reads(monkeypatch):
    """The stores that were read, without what comes with the package."""
    done = []

    def stored(store):
        done.append(store)
        return Leaderboard(store.entries())

    monkeypatch.setattr(module, "stored", stored)
    return done


def keep(home, entry):
    """Store a result at a time that is past, so that its file counts as settled."""
    store = ResultStore(home / FOLDER)
    store.keep(EvaluationRun("toy", "p", entry.predictor, 0, 1, "a" * 64, "", None), [entry])
    for path in (*store.folder.iterdir(), store.folder):
        age = 1_000_000_000 + len(store.entries())
        os.utime(path, (age, age))


def count(board: Leaderboard) -> int:
    return len(board.entries)


def test_entries_are_read_again_only_when_a_result_was_added(tmp_path, reads):
    keep(tmp_path, OURS)
    stored = StoredLeaderboard(tmp_path)
    assert [count(stored.board), count(stored.board)] == [1, 1]
    assert len(reads) == 1
    keep(tmp_path, replace(OURS, predictor="other"))
    assert count(stored.board) == 2


def test_what_is_made_of_the_entries_is_kept_until_they_change(tmp_path, reads):
    keep(tmp_path, OURS)
    stored, made = StoredLeaderboard(tmp_path), []

    def listed(board):
        made.append(board)
        return count(board)

    assert [stored.made(listed), stored.made(listed)] == [1, 1]
    assert len(made) == 1
    keep(tmp_path, replace(OURS, predictor="other"))
    assert stored.made(listed) == 2
