"""Readings are taken on a clock of their own and journaled as they come."""

from forerun.data.collectors.interference.run import Sampler
from forerun.data.collectors.runner.journal import LineJournal
from forerun.data.collectors.system.host_inventory import all_sources
from tests.data.collectors.recorded import V2, tree


def made(tmp_path, **settings):
    root = tree(tmp_path / "root", V2 | {"proc/7/task/7/schedstat": "1000000000 0 1\n"})
    journal = LineJournal(tmp_path / "samples.jsonl")
    return Sampler(journal, all_sources(root), root=root, **settings), journal


def test_counters_are_kept_apart_from_gauges(tmp_path):
    sampler, journal = made(tmp_path, clock=lambda: 12.5)
    sampler.sample()
    (row,) = journal.rows()
    assert row["t"] == 12.5
    assert row["cumulative"]["vmstat.pgfault"] == 61263
    assert row["gauges"]["load.1"] == 0.3
    assert not set(row["cumulative"]) & set(row["gauges"])
    assert row["task"] is None


def test_a_process_is_looked_at_while_it_is_watched(tmp_path):
    sampler, journal = made(tmp_path)
    for process in (7, 8, None):
        sampler.watch(process)
        sampler.sample()
    seen, gone, none = journal.rows()
    assert seen["cumulative"]["task.cpu_s"] == 1.0
    assert "task.cpu_s" not in gone["cumulative"], "a process that is gone has no time, not zero"
    assert (gone["task"], none["task"]) == (8, None)


def test_it_begins_before_and_ends_after_what_is_done_meanwhile(tmp_path):
    sampler, journal = made(tmp_path, interval_s=0.005)
    sampler.start()
    while len(list(journal.rows())) < 3:
        pass
    sampler.stop()
    times = [row["t"] for row in journal.rows()]
    assert times == sorted(times)
    count = len(times)
    sampler.stop()
    assert len(list(journal.rows())) == count, "stopping twice does nothing"
