"""A plan says what is run and in which order, so that wherever it is cut the rest is balanced."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.interference.neighbours import ISOLATED, State
from forerun.data.collectors.interference.plan import (
    ContentionPlan,
    Shared,
    possible,
    referenced,
)
from forerun.data.errors import BadTable, MissingData

STATES = (
    Shared(State("cache", "high", "other")),
    Shared(State("cpu", "high", "same"), 0.5),
    Shared(State("stream", "high", "other", "dynamic"), 0.4),
)


def plan(**settings):
    return ContentionPlan(("alu", "chase4", "triad", "copy", "matmul"), STATES, **settings)


@pytest.mark.parametrize("name", ["quick", "short", "standard"])
def test_plans_that_come_along_are_understood_by_name(name):
    found = ContentionPlan.read(Path(name))
    assert found.runs()
    assert ISOLATED in {run.state for run in found.runs()}


@pytest.mark.parametrize("name", ["short", "standard"])
def test_plans_for_publishing_have_what_it_takes(name):
    runs = ContentionPlan.read(Path(name)).runs()
    isolated = Counter(run.victim for run in runs if run.state == ISOLATED)
    assert min(isolated.values()) >= 10
    colocated = [run for run in runs if run.state != ISOLATED]
    assert {run.state.mode for run in colocated} == {"static", "dynamic"}
    assert {run.state.placement for run in colocated} == {"other", "same"}
    other = {run.state.neighbour for run in colocated if run.state.placement == "other"}
    assert len([name for name in other if not name.startswith("victim:")]) == 7


def test_the_standard_plan_has_three_intensities_of_all_loads_and_pairs_on_both_cpus():
    runs = ContentionPlan.read(Path("standard")).runs()
    states = {run.state for run in runs if run.state != ISOLATED}
    static = [s for s in states if s.placement == "other" and s.mode == "static"]
    loads = Counter(s.neighbour for s in static if not s.neighbour.startswith("victim:"))
    assert len(loads) == 7
    assert set(loads.values()) == {3}
    pairs = {s.placement for s in states if s.neighbour.startswith("victim:")}
    assert pairs == {"other", "same"}
    often = Counter((r.victim, r.state) for r in runs if r.state.name == "cache-high-other-static")
    assert set(often.values()) == {3}


def test_every_run_has_a_key_of_its_own():
    keys = [run.key for run in plan().runs()]
    assert len(set(keys)) == len(keys)


def test_the_order_is_the_seeds():
    assert plan(seed=1).runs() == plan(seed=1).runs()
    assert plan(seed=1).runs() != plan(seed=2).runs()


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 5), st.data())
def test_wherever_it_is_cut_every_victim_has_had_its_turns(seed, repeats, isolated, data):
    found = plan(seed=seed, repeats=repeats, isolated=isolated)
    runs = found.runs()
    cut = runs[: data.draw(st.integers(0, len(runs)))]
    alone = Counter(run.victim for run in cut if run.state == ISOLATED)
    counts = [alone[name] for name in found.victims]
    assert max(counts) - min(counts) <= 2
    met = Counter((run.victim, run.state) for run in cut if run.state != ISOLATED)
    whole = [met[name, STATES[0].state] for name in found.victims]
    assert max(whole) - min(whole) <= 1


@given(st.integers(0, 60), st.integers(1, 6))
def test_a_session_that_goes_on_has_isolated_runs_of_its_own_to_compare_with(done, least):
    left = plan(repeats=2, isolated=2).runs()[done:]
    runs = referenced(left, least, first=4)
    assert len({run.key for run in runs}) == len(runs)
    assert [run for run in runs if run in left] == left
    alone = Counter(run.victim for run in runs if run.state == ISOLATED)
    for run in runs:
        assert run.state == ISOLATED or alone[run.victim] >= least


def test_victims_take_turns_at_shared_states():
    runs = plan(repeats=5).runs()
    for each in STATES:
        met = Counter(run.victim for run in runs if run.state == each.state)
        assert len(met) == 5
        assert max(met.values()) - min(met.values()) == 0


def test_one_cpu_leaves_out_what_needs_another():
    runs = plan().runs()
    left = possible(runs, [0])
    assert {run.state.placement for run in left} == {"none", "same"}
    assert possible(runs, [0, 1]) == runs


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("- a\n", BadTable, "Input should be a valid dictionary"),
        ("a: [\n", BadTable, "is not YAML"),
        ("neighbors: 1\n", BadTable, "neighbors: Unexpected keyword argument"),
        ("repeats: two\n", BadTable, "repeats: Input should be a valid integer"),
        ("repeats: 0\n", BadTable, "repeats: Input should be greater than or equal to 1"),
        ("victims: [chase3]\n", MissingData, "No victim named 'chase3'"),
        ("states: [cache]\n", BadTable, r"states\.0: Input should be a valid dictionary"),
        ("states: [{neighbour: cache}]\n", BadTable, r"states\.0\.neighbour: Extra inputs"),
        ("states: [{neighbours: [disk]}]\n", BadTable, "No neighbour 'disk'"),
        (
            "states: [{neighbours: [cpu], share: 2}]\n",
            BadTable,
            "share: Input should be less",
        ),
    ],
)
def test_a_plan_that_is_none_says_why(text, error, why, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(error, match=why):
        ContentionPlan.read(path)


def test_a_plan_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingData, match=r"none\.yaml: give a \.yaml file, or one of"):
        ContentionPlan.read(tmp_path / "none.yaml")


def test_settings_are_read(tmp_path):
    text = "victims: [alu]\nrepeats: 2\nclock_s: 0.5\nprobe_ms: 0\nstates:\n- {neighbours: [cpu]}\n"
    (tmp_path / "plan.yaml").write_text(text)
    found = ContentionPlan.read(tmp_path / "plan.yaml")
    assert (found.repeats, found.clock_s, found.probe_ms) == (2, 0.5, 0)
    assert found.states == (Shared(State("cpu", "high", "other")),)
