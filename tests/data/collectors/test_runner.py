"""Collections that go on where they stopped: journals, stopwatches and workers."""

import json
import math
import os
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.runner.collector import (
    Broken,
    Budget,
    collect,
    coverage_first,
    progress_line,
    side_by_side,
    work,
)
from forerun.data.collectors.runner.journal import Journal, LineJournal, OtherRun
from forerun.data.collectors.runner.stopwatch import Stopwatch, summary
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.runner.worker import Worker, WorkerFailed, group_cpu_s
from tests.data.collectors.processes import runs
from tests.waiting import eventually

# The loop of all collectors: budgets, rows at once, and another look at what was unsteady.
#
# Plans: coverage before depth, and nothing begun that cannot end in time.


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


trials = st.lists(
    st.builds(
        lambda group, flops, size: Trial(
            Source(f"{group}{flops}"), batch_size=size, group=group, flops=flops
        ),
        st.sampled_from("abc"),
        st.floats(1e6, 1e13),
        st.integers(1, 64),
    ),
    max_size=40,
    unique_by=lambda trial: trial.key,
)


def of(group, *gflops):
    return [Trial(Source(f"{group}{g}"), group=group, flops=1e9 * g) for g in gflops]


def a_second(trial):
    return 1.0


def test_every_group_comes_once_before_any_comes_twice():
    ordered = coverage_first([*of("a", 1, 2, 3), *of("b", 1, 2, 3), *of("c", 1)])
    assert [trial.group for trial in ordered] == ["a", "b", "c", "a", "b", "a", "b"]


def test_a_group_begins_in_the_middle_and_goes_on_by_halves():
    ordered = coverage_first(of("a", 1, 2, 3, 4, 5, 6, 7))
    assert [trial.flops / 1e9 for trial in ordered] == [4, 2, 6, 1, 3, 5, 7]


@given(trials)
def test_an_order_loses_and_invents_nothing(given):
    assert sorted(t.key for t in coverage_first(given)) == sorted(t.key for t in given)


@given(trials, st.floats(1, 300), st.floats(1e9, 1e13))
def test_a_machine_as_fast_as_thought_never_runs_over(given, total_s, rate):
    budget = Budget(total_s, a_second, rate)
    for trial in budget.within(given):
        guess = budget.guess_s(trial)
        run_s = trial.flops * trial.batch_size / rate
        budget.spend(trial, guess, 1e3 * run_s)
        assert budget.left_s >= -1e-6


def test_what_does_not_fit_at_first_waits_until_a_faster_rate_is_known():
    quick, slow = of("a", 0.2, 100)
    budget = Budget(20.0, a_second, rate=1e9)
    begun = []
    for trial in budget.within([slow, quick]):
        begun.append(trial)
        budget.spend(trial, 1.0, 1e3 * trial.flops / 1e12)
    assert begun == [quick, slow]


def test_many_small_trials_do_not_make_a_large_one_look_endless():
    small, large = of("a", *(0.2 + n / 1000 for n in range(20))), of("b", 1000, 2000, 4000)
    budget = Budget(60.0, a_second, rate=3e13)
    for trial in small:
        budget.spend(trial, 1.0, 1e3 * work(trial) / 1e10)
    for trial in large:
        budget.spend(trial, 1.0, 1e3 * work(trial) / 5e13)
    assert budget.guess_s(of("c", 3000)[0]) < 2
    assert budget.guess_s(of("c", 0.3)[0]) > 1.1


def test_plans_side_by_side_have_had_as_much_time_wherever_they_end():
    quick, slow = of("a", *range(1, 31)), of("b", 1, 2, 3)
    both = side_by_side((quick, slow), lambda trial: 10.0 if trial.group == "b" else 1.0)
    assert [trial for trial in both if trial.group == "a"] == quick
    assert [trial for trial in both if trial.group == "b"] == slow
    assert [trial.group for trial in both[:22]] == 2 * [*"a" * 10, "b"]


# Journals: every row is kept at once, and a run that was cut off goes on.
#
# A journal cut anywhere is readable, and goes on.


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


# Stopwatch: medians, spread and drift of what is timed, in as many runs as the budget allows.


class FakeClock:
    """A clock that only work moves."""

    def __init__(self, times):
        self.now, self.times, self.runs = 0.0, iter(times), 0

    def __call__(self):
        return self.now

    def run(self):
        self.runs += 1
        self.now += next(self.times)


def timed(times, **how):
    clock = FakeClock(times)
    return Stopwatch(clock=clock, **how).time(clock.run), clock


def endless(value):
    while True:
        yield value


def test_the_median_leaves_warm_up_out():
    timing, _ = timed([5.0, 4.0, *[0.1] * 100], budget_s=1.0, warm_up_s=0.0)
    assert timing.median_ms == pytest.approx(100)
    assert timing.spread == pytest.approx(0, abs=1e-9)


def test_runs_fill_the_budget_and_no_more():
    timing, clock = timed(endless(0.1), budget_s=1.0, warm_up_s=0.0)
    assert timing.repeats == 10
    assert clock.runs == 12


def test_a_slow_run_is_measured_a_least_number_of_times_whatever_the_budget():
    timing, _ = timed(endless(50.0), budget_s=1.0)
    assert timing.repeats == 3


def test_a_window_that_drifts_is_measured_again_and_the_steadier_one_counts():
    rising = [0.1, 0.1, *[0.1] * 5, *[0.16] * 50]
    timing, _ = timed(rising, budget_s=1.0, warm_up_s=0.0)
    assert timing.drift == pytest.approx(0)
    assert timing.median_ms == pytest.approx(160)


def test_seconds_of_another_clock_count_where_they_are_given():
    clock = FakeClock(endless(0.1))

    def seconds(run):
        run()
        return 0.02

    timing = Stopwatch(1.0, clock=clock, seconds=seconds).time(clock.run)
    assert timing.median_ms == pytest.approx(20)
    assert timing.window_s == pytest.approx(0.1 * timing.repeats)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60), st.floats(0.01, 100))
def test_spread_and_drift_do_not_depend_on_the_unit(times, scale):
    plain, scaled = summary(times, 1.0), summary([scale * t for t in times], 1.0)
    assert scaled.median_ms == pytest.approx(scale * plain.median_ms)
    assert scaled.spread == pytest.approx(plain.spread, abs=1e-6)
    assert scaled.drift == pytest.approx(plain.drift, rel=1e-6, abs=1e-6)
    assert plain.spread >= 0
    assert min(times) <= plain.median_ms / 1e3 * (1 + 1e-9)


def test_the_fastest_steady_window_is_kept():
    """A first window at a level of 33 ms drifts down; the second one is steady at 20."""
    falling = [0.05, 0.05, *[0.033] * 20, *[0.02] * 80]
    timing, _ = timed(falling, budget_s=1.0, warm_up_s=0.0)
    assert timing.median_ms == pytest.approx(20)
    slower_again = [0.05, 0.05, *[0.02] * 20, *[0.033] * 18, *[0.033] * 60]
    timing, _ = timed(slower_again, budget_s=1.0, warm_up_s=0.0, parts=4)
    assert timing.median_ms == pytest.approx(20)


def test_parts_leave_a_neighbour_out_that_came_for_a_while():
    disturbed = [0.01, 0.01, *[0.01] * 30, *[0.016] * 30, *[0.01] * 100]
    timing, _ = timed(disturbed, budget_s=1.0, warm_up_s=0.0, parts=5)
    assert timing.median_ms == pytest.approx(10)
    assert timing.steady


def test_the_fastest_run_of_all_is_reported_with_the_window_that_counts():
    times = [0.05, 0.05, 0.008, *[0.02] * 200]
    timing, _ = timed(times, budget_s=1.0, warm_up_s=0.0, parts=5)
    assert timing.fastest_ms == pytest.approx(8)
    assert timing.median_ms == pytest.approx(20)


# Programs that were started are ended, whatever happens, and say in time what they must.


TALKER = (
    "import sys; print('ready', flush=True); sys.stdin.readline(); "
    "print('{\"wall\": 2}', flush=True)"
)
SLEEPER = "import time; time.sleep(600)"
FAMILY = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork(): print('ready', flush=True)\n"
    "time.sleep(600)"
)


def python(code, **settings):
    return Worker([sys.executable, "-c", code], **settings)


def test_it_gets_ready_goes_and_says_its_result():
    with python(TALKER) as worker:
        worker.wait_ready(30)
        worker.go()
        assert worker.result(30) == {"wall": 2}


def test_one_that_says_nothing_in_time_fails():
    with python(SLEEPER) as worker, pytest.raises(WorkerFailed, match="no answer"):
        worker.wait_ready(0.01)
    assert not worker.is_alive()


def test_one_that_ends_early_fails_with_its_code():
    with python("raise SystemExit(3)") as worker, pytest.raises(WorkerFailed, match="code 3"):
        worker.wait_ready(30)


def test_one_that_says_something_else_fails():
    with python("print('hello', flush=True)") as worker, pytest.raises(WorkerFailed):
        worker.wait_ready(30)


def test_all_of_its_group_are_ended_even_those_that_refuse(monkeypatch):
    monkeypatch.setattr("forerun.data.collectors.runner.worker.GRACE_S", 0.05)
    with pytest.raises(KeyboardInterrupt), python(FAMILY) as worker:
        worker.wait_ready(30)
        raise KeyboardInterrupt
    eventually(lambda: not runs(worker.process))


def test_cpu_seconds_of_a_group_are_counted():
    assert group_cpu_s(os.getpgrp()) > 0
    assert group_cpu_s(2**30) == 0
