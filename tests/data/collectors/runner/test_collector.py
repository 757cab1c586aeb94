"""The loop of all collectors: budgets, rows at once, and another look at what was unsteady."""

import pytest

from forerun.data.collectors.runner.collector import Broken, collect, progress_line
from forerun.data.collectors.runner.journal import Journal
from forerun.data.collectors.runner.trial import Source, Trial


class Scripted:
    """A collector whose rows and times are written down beforehand."""

    name = "scripted"
    rate = 1e12

    def __init__(self, rows):
        self.rows = {name: iter(each) for name, each in rows.items()}
        self.now, self.asked = 0.0, []

    def fixed_s(self, trial):
        return 1.0

    def available(self):
        return None

    def plan(self):
        return tuple(Trial(Source(name), group=name) for name in self.rows)

    def about(self):
        return {"device": "mine"}

    def measure(self, trial):
        self.asked.append(trial.subject.name)
        self.now += 1.0
        found = next(self.rows[trial.subject.name])
        if isinstance(found, Exception):
            raise found
        return found


def row(ms, spread):
    return {"status": "ok", "latency_ms": ms, "spread": spread, "repeats": 9, "window_s": 1.0}


def run(collector, tmp_path, budget_s=60.0, **how):
    journal = Journal.for_table(tmp_path / "t.parquet")
    done = collect(collector, journal, budget_s, clock=lambda: collector.now, **how)
    return done, {r["label"]: r for r in journal.rows()}


def test_the_budget_ends_a_run_and_says_what_is_left(tmp_path):
    collector = Scripted({name: [row(1.0, 0.0)] for name in "abcde"})
    done, rows = run(collector, tmp_path, budget_s=3.5)
    assert (done.measured, done.left, len(rows)) == (3, 2, 3)


def test_what_is_unsteady_is_measured_again_the_worst_first_and_the_steadier_row_counts(tmp_path):
    collector = Scripted(
        {
            "steady": [row(1.0, 0.02)],
            "better": [row(3.0, 0.3), row(2.0, 0.1)],
            "worse": [row(5.0, 0.5), row(9.0, 0.8)],
        }
    )
    done, rows = run(collector, tmp_path, unsteady=0.2)
    assert collector.asked[3:] == ["worse", "better"]
    assert (done.measured, done.again) == (3, 2)
    assert rows["better"]["latency_ms"] == 2.0
    assert rows["worse"]["latency_ms"] == 5.0


def test_nothing_is_measured_again_while_something_was_never_measured(tmp_path):
    collector = Scripted({"a": [row(1.0, 0.9)], "b": [row(1.0, 0.9)]})
    done, _ = run(collector, tmp_path, budget_s=1.5, unsteady=0.2)
    assert (done.measured, done.left, done.again) == (1, 1, 0)


def test_a_collector_that_broke_leaves_the_row_it_broke_at(tmp_path):
    broken = Broken({"status": "failed", "reason": "lost"}, "lost")
    collector = Scripted({"a": [broken]})
    with pytest.raises(Broken, match="lost"):
        run(collector, tmp_path)
    (kept,) = Journal.for_table(tmp_path / "t.parquet").rows()
    assert (kept["status"], kept["device"], kept["label"]) == ("failed", "mine", "a")


def test_a_line_of_progress_tells_the_figure_or_the_reason():
    trial = Trial(Source("resnet50"), batch_size=4)
    assert "2 ms, spread 30.0 %, 9 runs (7 s left)" in progress_line(trial, row(2.0, 0.3), 7.2)
    failed = {"status": "oom", "reason": "Tried to allocate 1 TiB"}
    assert "oom: Tried to allocate 1 TiB" in progress_line(trial, failed, 0)
