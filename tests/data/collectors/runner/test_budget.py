"""Plans: coverage before depth, and nothing begun that cannot end in time."""

from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.runner.collector import Budget, coverage_first, side_by_side, work
from forerun.data.collectors.runner.trial import Source, Trial

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
