"""Features of programs that share a host, limits of them, and runs that are held out."""

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import NAMES, STATISTICS
from forerun.models.colocation.booster import (
    FACTORS,
    FEWEST_HELD_OUT,
    NEW,
    NO_WINDOW,
    PROFILED,
    SCATTERED,
    UNLIKE_ALL,
    UNMEASURED_FACTORS,
    fit_shrinkage,
    limits_of,
    uninformative_runs,
)
from forerun.models.colocation.features import (
    FACTS,
    LOAD,
    LONGEST_WAIT,
    SCATTER,
    ColocationRows,
    ProgramEffects,
)
from forerun.models.colocation.host_forecast import idle_window
from forerun.models.domain.feature_range import FeatureRange
from tests.devices import HOST

# Features of co-located programs and effects of each program, by hand.


SHARE, READ = "task.cpu_share", "probe.read_gbs"


def window(**metrics):
    """One second of metrics; a name with a dot is written with two underscores."""
    names = tuple(name.replace("__", ".") for name in metrics)
    return HostWindow(names, (tuple(metrics.values()),))


NOTHING = HostWindow()


def query(profile=None, seen=NOTHING, **more):
    return Query(Colocation(profile or ProgramProfile("a"), seen, **more), HOST)


def rows(*queries, idle=None):
    return ColocationRows.from_queries(queries, idle)


def none(count):
    return np.full((count, 2), np.nan)


def test_facts_are_logarithms_and_missing_where_not_known():
    known = ProgramProfile("a", working_set_mib=8.0, cpu_share=0.5, cpu_spread=0.02,
                           p_cpu_beside_cache=0.7)  # fmt: skip
    found = rows(query(known), query(ProgramProfile("b")))
    assert FACTS == ("log_working_set", "cpu_share", "log_cpu_spread")
    assert found.facts[0] == pytest.approx([np.log(8.0), 0.5, np.log(0.02)])
    assert np.isnan(found.facts[1]).all()
    assert found.log_p_with_load[0] == pytest.approx(np.log(0.7))
    assert found.sensitivity_proxies[0] == pytest.approx([np.log(0.7), 0.02])
    assert np.isnan(found.sensitivity_proxies[1]).all()
    assert np.isnan(found.unprofiled().log_p_with_load).all()
    assert found.cpu_share[0] == 0.5
    steady = rows(query(ProgramProfile("c", working_set_mib=0.0, cpu_spread=0.0)))
    assert np.isfinite(steady.facts[0, [0, 2]]).all()


def test_waiting_is_the_share_of_a_cpu_over_that_alone_and_at_most_all_of_it():
    alone = ProgramProfile("a", alone=window(task__cpu_share=0.8))
    found = rows(
        query(alone, window(task__cpu_share=0.4)),
        query(alone, window(task__cpu_share=0.9)),
        query(alone, granted=0.25),
        query(alone, window(task__cpu_share=1e-9)),
        query(alone),
    ).waiting
    assert found[:4] == pytest.approx([np.log(0.5), 0.0, np.log(0.25), LONGEST_WAIT])
    assert np.isnan(found[4])


def test_a_reference_is_a_ratio_of_times_and_one_where_not_known():
    found = rows(query(reference_ratio=1.2), query()).reference
    assert found == pytest.approx([np.log(1.2), 0.0])


def test_an_idle_host_stands_in_for_what_was_not_read_alone():
    profile = ProgramProfile("a", alone=window(task__cpu_share=0.8))
    idle = window(task__cpu_share=0.0, disk__in_flight=2.0)
    found = rows(query(profile), idle=idle).alone[0]
    assert found[NAMES.index(SHARE)] == 0.8
    assert found[NAMES.index("disk.in_flight")] == 2.0
    assert np.isnan(found[NAMES.index("load.running")])


def test_a_metric_that_a_window_lacks_is_as_it_is_alone():
    profile = ProgramProfile("a", alone=window(task__cpu_share=0.8, disk__in_flight=2.0))
    columns = [NAMES.index(SHARE), NAMES.index("disk.in_flight")]
    seen = HostWindow((SHARE,), ((0.2,), (0.4,), (0.6,)))
    found = rows(query(profile, seen)).matrix(columns)[0]
    assert len(found) == 2 * (len(STATISTICS) + 2) + len(FACTS)
    median, spread, most, trend = found[:8].reshape(4, 2)
    assert median.tolist() == [0.4, 2.0]
    assert spread.tolist() == pytest.approx([0.32, 0.0])
    assert most.tolist() == [0.6, 2.0]
    assert trend[0] == pytest.approx(0.2)
    assert found[8:10].tolist() == pytest.approx([-0.4, 0.0])
    assert found[10:12].tolist() == [0.8, 2.0]


def test_effects_are_shrunken_by_two_runs_of_all_programs():
    """Six runs at -0.2, six at -0.4 and two at -9, which has none of its own."""
    programs = np.array(["a"] * 6 + ["b"] * 6 + ["c"] * 2)
    log_p = np.array([-0.2] * 6 + [-0.4] * 6 + [-9.0] * 2)
    effects = ProgramEffects.fit(programs, log_p, none(14))
    assert effects.common == pytest.approx((-0.4, 0.005)), "spread: the least there is"
    assert set(effects.programs) == {"a", "b"}
    assert effects.programs["a"][0] == pytest.approx(0.75 * -0.2 + 0.25 * -0.4)
    assert effects.programs["b"][0] == pytest.approx(-0.4)
    assert effects.programs["a"][1] == pytest.approx(0.005)
    assert ProgramEffects.fit(np.array([], dtype=str), np.array([]), none(0)).programs == {}


def test_a_spread_is_half_robust_and_half_the_usual():
    """-1, 0, 1: 1.4826 and 1; both spreads are alike, so that shrinking changes nothing."""
    programs = np.array(["a"] * 3 + ["b"] * 3)
    effects = ProgramEffects.fit(programs, np.array([-1.0, 0.0, 1.0] * 2), none(6))
    assert effects.programs["a"] == pytest.approx((0.0, (1.4826 + 1.0) / 2))


def test_two_runs_have_a_spread_and_one_has_the_least():
    """-0.1 and 0.1: 0.148 and 0.141; of three programs the one in the middle is common."""
    programs = np.array(["a", "a", "b", "c", "c"])
    log_p = np.array([-0.1, 0.1, 0.0, -1.0, 1.0])
    common = ProgramEffects.fit(programs, log_p, none(5)).common
    assert common[1] == pytest.approx((0.14826 + np.sqrt(0.02)) / 2)


def test_unmeasured_programs_are_estimated_by_what_scales_with_the_effect():
    """Three programs lose half as much as next to one load: so does a new one."""
    loads = np.repeat([-0.2, -0.4, -0.8], 4)
    programs = np.repeat(["a", "b", "c"], 4)
    proxies = np.stack([loads, np.full(12, np.nan)], axis=1)
    effects = ProgramEffects.fit(programs, 0.5 * loads, proxies)
    assert set(effects.shares) == {LOAD}
    weight = 4 / 6
    expected = weight * 0.5 + (1 - weight) * np.median(0.5 * loads) / -0.8
    assert effects.shares[LOAD][0] == pytest.approx(expected), "most weight has the largest"
    new, unread = np.array([[-0.6, np.nan]]), none(1)
    middle, _, mode = effects.estimate(np.array(["z"]), new)
    assert (middle[0], mode[0]) == (pytest.approx(-0.6 * expected), "profiled")
    middle, spread, mode = effects.estimate(np.array(["z"]), unread)
    assert (middle[0], spread[0], mode[0]) == (*effects.common, "new")
    middle, _, mode = effects.estimate(np.array(["a"]), new)
    assert (middle[0], mode[0]) == (effects.programs["a"][0], "known")


def test_two_proxies_are_averaged_levels_plainly_and_spreads_as_logarithms():
    effects = ProgramEffects({}, (0.0, 0.1), {LOAD: (0.5, 0.2), SCATTER: (-10.0, 1.0)})
    both = np.array([[-0.4, 0.05]])
    middle, spread, mode = effects.estimate(np.array(["z"]), both)
    assert middle[0] == pytest.approx((0.5 * -0.4 - 10 * 0.05) / 2)
    assert spread[0] == pytest.approx(np.sqrt(0.2 * 0.4 * 0.05))
    assert mode[0] == "profiled"
    assert effects.estimate(np.array(["z"]), np.array([[np.nan, 0.05]]))[2][0] == "new"


def test_an_idle_host_is_the_median_without_programs_else_a_low_quantile_of_those_alone():
    profiles = [
        ProgramProfile(str(n), alone=HostWindow((SHARE, READ), ((n / 10, float(n)),)))
        for n in range(11)
    ]
    idle = idle_window([query(p) for p in profiles])
    found = dict(zip(idle.metrics, idle.seconds[0], strict=True))
    assert found[SHARE] == pytest.approx(0.1), "10 % quantile"
    assert found[READ] == pytest.approx(9.0), "it falls under load: 90 %"
    empty = [
        ProgramProfile("x", alone=p.alone, without=window(task__cpu_share=s))
        for p, s in zip(profiles, (0.0, 0.02, 0.5), strict=False)
    ]
    idle = idle_window([query(p) for p in empty])
    assert dict(zip(idle.metrics, idle.seconds[0], strict=True))[SHARE] == pytest.approx(0.02)
    assert idle_window([]) == HostWindow()


# Sentences about co-location, each where it holds and nowhere else.


SEEN = HostWindow(("load.running", "probe.read_gbs"), ((3.0, 8.0),))


def lines(mode="known", seen=SEEN, unlike=False, training=("load.running",), ranges=None, **more):
    estimated = more.pop("estimated", False)
    query = Query(Colocation(ProgramProfile("a", **more), seen, estimated=estimated), HOST)
    rows = ColocationRows.from_queries([query])
    modes, flags = np.array([mode]), np.array([unlike])
    found = limits_of(rows, modes, training, ranges, flags)[0]
    return tuple(map(str, found))


@pytest.mark.parametrize(
    ("mode", "expected"), [("known", ()), ("new", (NEW,)), ("profiled", (PROFILED,))]
)
def test_what_an_answer_rests_on_is_said(mode, expected):
    assert lines(mode) == expected
    assert lines(mode, unlike=True) == (*expected, UNLIKE_ALL)


def test_a_new_program_whose_times_scatter_has_a_sentence_of_its_own():
    assert lines("new", cpu_spread=0.02) == (SCATTERED,)
    assert lines("known", cpu_spread=0.02) == ()


def test_without_a_window_that_is_all_there_is_to_say():
    assert lines("new", seen=HostWindow(), training=("cpu.idle_share",)) == (NEW, NO_WINDOW)


def test_missing_metrics_are_counted_but_those_that_cannot_be_had():
    wanted = ("load.running", "disk.io_share", "probe.evicted", "own_cpu.user_share")
    assert lines(training=wanted) == ("host metrics of the training set are missing: 2",)
    own = ("task.cpu_share", "disk.io_share")
    (line,) = lines(training=own, estimated=True)
    assert line.endswith("missing: 1"), "a forecast cannot read the program's own metrics"
    assert lines(training=own)[0].endswith("missing: 2")


def test_medians_are_compared_in_their_own_units():
    """The probe is a logarithm inside, gigabytes a second in the sentence."""
    names = ("load.running", "probe.read_gbs")
    inside = FeatureRange(names, np.array([0.0, 5.0]), np.array([4.0, 10.0]))
    assert lines(ranges=inside) == ()
    outside = FeatureRange(names, np.array([0.0, 9.0]), np.array([4.0, 10.0]))
    (line,) = lines(ranges=outside)
    assert line == "probe.read_gbs is 8; the training set has 9 to 10"


# Shrinkage that held-out runs choose, and which of them count.


def measured(values, **groups):
    queries = [Query(Colocation(ProgramProfile("a"), HostWindow()), HOST)] * len(values)
    return Measurements(
        queries, {"p_cpu": np.array(values)}, {name: np.array(v) for name, v in groups.items()}
    )


@pytest.mark.parametrize("factor", FACTORS)
def test_the_factor_that_explains_the_runs_is_chosen(factor):
    deviation = np.linspace(-0.4, 0.4, 20)
    middle, names = np.full(20, -0.2), np.array(["a"] * 20)
    found = fit_shrinkage(names, middle + factor * deviation, middle, deviation)
    assert found == {"a": factor}


def test_programs_that_were_not_measured_may_deviate_more():
    deviation, middle = np.linspace(-0.4, 0.4, 20), np.zeros(20)
    keys = np.array([""] * 20)
    assert fit_shrinkage(keys, 1.5 * deviation, middle, deviation) == {"": 1.0}
    more = fit_shrinkage(keys, 1.5 * deviation, middle, deviation, UNMEASURED_FACTORS)
    assert more == {"": 1.5}


@pytest.mark.parametrize(("known", "chosen"), [(FEWEST_HELD_OUT, {"a": 0.0}), (14, {})])
def test_fewer_than_fifteen_runs_choose_nothing(known, chosen):
    deviation = np.linspace(0.1, 0.4, 20)
    target = np.where(np.arange(20) < known, 0.0, np.nan)
    assert fit_shrinkage(np.array(["a"] * 20), target, np.zeros(20), deviation) == chosen


def test_runs_that_made_the_inputs_are_not_held_out():
    """An isolated run; a run next to the load; an ordinary one; one of a program without load."""
    profiles = [ProgramProfile("a", p_cpu_beside_cache=0.7)] * 3 + [ProgramProfile("b")]
    queries = [Query(Colocation(profile, HostWindow()), HOST) for profile in profiles]
    rows = ColocationRows.from_queries(queries)
    given = measured(
        [1.0, 0.7, 0.6, 0.6],
        neighbour=["none", "load", "x", "x"],
        profile=["", "profile run", "", ""],
    )
    assert uninformative_runs(rows, given, "known").tolist() == [False] * 4
    assert uninformative_runs(rows, given, "new").tolist() == [True, False, False, False]
    assert uninformative_runs(rows, given, "profiled").tolist() == [True, True, False, True]
