"""Pacing: who gets a window of power, the same each time, and how long that is."""

from forerun.data.collectors.latency.gpu_plan import LONG_S, SHORT_S, Pacing
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operators import linear

OPERATORS = [Trial(linear(8, 16 * n, 16)) for n in range(1, 400)]
NETWORKS = [Trial(Source("resnet50"), batch_size=n) for n in range(1, 400)]


def windows(pacing, trials):
    return [pacing.of(trial).power(trial) for trial in trials]


def test_one_operator_in_six_has_a_short_window_of_power():
    found = windows(Pacing.to_a_budget(), OPERATORS)
    assert {w and w.seconds for w in found} == {None, SHORT_S}
    assert 45 <= sum(w is not None for w in found) <= 90
    assert found == windows(Pacing.to_a_budget(), OPERATORS)


def test_every_network_has_a_window_and_one_in_sixteen_a_long_one_after_rest_and_warm_up():
    found = windows(Pacing.to_a_budget(), NETWORKS)
    assert {w.seconds for w in found} == {SHORT_S, LONG_S}
    long = [w for w in found if w.seconds == LONG_S]
    assert 12 <= len(long) <= 40
    assert all(w.rest_s > 0 and w.warm_up_s > 0 for w in long)


def test_without_seconds_for_power_there_is_no_window():
    assert {*windows(Pacing.to_a_budget(0.0), [*OPERATORS, *NETWORKS])} == {None}


def test_the_time_of_a_trial_holds_all_its_windows():
    pace = Pacing.to_a_budget().networks
    for trial in NETWORKS[:50]:
        power = pace.power(trial)
        least = pace.latency.warm_up_s + pace.latency.budget_s + power.seconds
        assert pace.total_s(trial) >= least + power.rest_s + power.warm_up_s
