"""The loop of all collectors: budgets, rows at once, and another look at what was unsteady.

Plans: coverage before depth, and nothing begun that cannot end in time.
"""

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
