"""Journals: every row is kept at once, and a run that was cut off goes on.

A journal cut anywhere is readable, and goes on.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.runner.journal import Journal, LineJournal, OtherRun


@pytest.fixture
def journal(tmp_path):
    made = Journal.for_table(tmp_path / "table.parquet")
    made.open({"device": "mine", "threads": 2})
    return made


def test_rows_come_back_as_they_were_kept(journal):
    journal.add("a", {"status": "ok", "latency_ms": np.float64(1.5), "energy_j": math.nan})
    journal.add("b", {"status": "oom"})
    frame = journal.frame()
    assert frame["trial"].tolist() == ["a", "b"]
    assert frame["latency_ms"].iloc[0] == 1.5
    assert frame["energy_j"].isna().all()
    assert journal.done() == {"a", "b"}


def test_a_row_that_a_crash_cut_off_is_passed_over_and_swallows_no_other(journal):
    journal.add("a", {"status": "ok"})
    with journal.lines.path.open("a") as file:
        file.write('{"trial": "b", "stat')
    journal.open({"device": "mine", "threads": 2})
    journal.add("c", {"status": "ok"})
    assert journal.done() == {"a", "c"}


def test_what_failed_is_tried_twice_and_no_more(journal):
    journal.add("a", {"status": "failed"})
    assert journal.done() == set()
    journal.add("a", {"status": "failed"})
    assert journal.done() == {"a"}
    assert len(journal.frame()) == 1


def test_rows_of_another_machine_are_not_mixed_in(journal):
    with pytest.raises(OtherRun, match="threads"):
        journal.open({"device": "mine", "threads": 4})


def test_a_row_is_a_line_of_its_own_as_soon_as_it_was_added(journal):
    journal.add("a", {"status": "ok"})
    assert [json.loads(line) for line in journal.lines.path.read_text().splitlines()][1] == {
        "trial": "a",
        "status": "ok",
    }


ROWS = [{"n": i, "text": "ä\n" * i} for i in range(4)]


def test_lines_are_read_in_the_order_they_were_written(tmp_path):
    journal = LineJournal(tmp_path / "deep" / "rows.jsonl")
    assert list(journal.rows()) == []
    for row in ROWS:
        journal.append(row)
    assert list(journal.rows()) == ROWS


@given(st.data())
def test_a_journal_cut_anywhere_keeps_its_whole_lines_and_goes_on(tmp_path_factory, data):
    journal = LineJournal(tmp_path_factory.mktemp("journal") / "rows.jsonl")
    for row in ROWS:
        journal.append(row)
    whole = journal.path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    journal.path.write_bytes(whole[:cut])
    kept = list(journal.rows())
    assert kept == ROWS[: len(kept)]
    assert len(kept) >= whole[:cut].count(b"\n")
    journal.append({"n": "after"})
    assert list(journal.rows()) == [*kept, {"n": "after"}]
