"""A journal cut anywhere is readable, and goes on."""

from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.runner.journal import LineJournal

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
