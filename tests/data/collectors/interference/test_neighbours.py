"""Neighbours run where and when they should, and never longer than the run they disturb."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.interference import neighbours
from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.neighbours import (
    DUTY,
    ISOLATED,
    PHASES_S,
    STRESSORS,
    Neighbour,
    State,
    phases,
)
from forerun.data.errors import BadTable, MissingData
from tests.data.collectors.processes import runs
from tests.waiting import eventually

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler here")
CACHE = State("cache", "high", "other")


@pytest.fixture
def own_loads(monkeypatch, compiled, tmp_path):
    """A folder for files, without stress-ng."""
    monkeypatch.setattr(neighbours, "stress_ng", lambda: None)
    return tmp_path


def is_ended(group):
    eventually(lambda: not runs(group))
    return True


@pytest.mark.parametrize(
    ("state", "error", "why"),
    [
        (State("disk", "high", "other"), BadTable, "'disk'; there are cpu, cache"),
        (State("cache", "huge", "other"), BadTable, "'huge' is none of low, medium, high"),
        (State("cache", "high", "here"), BadTable, "'here' is none of other, same"),
        (State("cache", "high", "same", "often"), BadTable, "'often' is none of static, dynamic"),
        (State("victim:none", "high", "same"), MissingData, "No victim named 'none'"),
    ],
)
def test_a_state_that_there_is_not_is_refused(state, error, why):
    with pytest.raises(error, match=why):
        state.check()


def test_states_have_names_of_their_own():
    ISOLATED.check()
    assert ISOLATED.name == "none"
    State("victim:triad", "low", "same", "dynamic").check()
    assert CACHE.name == "cache-high-other-static"


@given(st.integers(0, 2**32), st.sampled_from(("static", "dynamic")), st.sampled_from(list(DUTY)))
def test_phases_are_the_same_for_the_same_seed_and_keep_their_lengths(seed, mode, intensity):
    state = State("cache", intensity, "other", mode)
    found = list(itertools.islice(phases(state, seed), 30))
    assert found == list(itertools.islice(phases(state, seed), 30))
    on, off = (sum(s for is_on, s in found if is_on is value) for value in (True, False))
    if mode == "dynamic":
        assert all(PHASES_S[0] <= s <= PHASES_S[1] for _, s in found[1:])
        assert all(a[0] is not b[0] for a, b in itertools.pairwise(found))
    else:
        assert on / (on + off) == pytest.approx(DUTY[intensity])


def test_the_share_of_a_run_in_which_it_was_on():
    switches = [(0.0, True), (2.0, False), (3.0, True), (5.0, False)]
    neighbour = Neighbour(CACHE, 0, None, switches=switches)
    assert neighbour.on_share(1.0, 4.0) == pytest.approx(2 / 3)
    assert neighbour.on_share(5.0, 9.0) == 0
    assert Neighbour(ISOLATED, 0, None).on_share(0.0, 1.0) == 0


def test_no_neighbour_starts_nothing(tmp_path):
    with Neighbour(ISOLATED, 0, tmp_path) as neighbour:
        assert neighbour.is_alive()
        assert neighbour.cpu_s() == 0


@needs_compiler
@pytest.mark.parametrize("name", [*STRESSORS, "victim:chase1"])
def test_each_load_of_our_own_uses_the_cpu_until_the_block_is_left(name, own_loads):
    with Neighbour(State(name, "high", "other"), -1, own_loads) as neighbour:
        group = neighbour._worker.process
        eventually(lambda: neighbour.cpu_s() > 0)
        assert neighbour.is_alive()
    assert is_ended(group)
    assert list(own_loads.iterdir()) == [], "no file is left behind"


@needs_compiler
def test_a_victim_as_neighbour_is_at_work_when_the_block_begins(own_loads):
    with Neighbour(State("victim:perceptron", "high", "same"), -1, own_loads) as neighbour:
        before = neighbour.cpu_s()
        eventually(lambda: neighbour.cpu_s() > before)


@needs_compiler
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_neighbour_that_is_stopped_in_its_off_phase_is_ended_too(mode, own_loads, monkeypatch):
    monkeypatch.setattr(neighbours, "phases", lambda state, seed: iter([(True, 0.0), (False, 60)]))
    neighbour = Neighbour(State("cpu", "low", "same", mode), -1, own_loads)
    with pytest.raises(KeyboardInterrupt), neighbour:
        group = neighbour._worker.process
        eventually(lambda: len(neighbour.switches) == 3)
        raise KeyboardInterrupt
    assert is_ended(group)
    assert [on for _, on in neighbour.switches] == [True, True, False]
