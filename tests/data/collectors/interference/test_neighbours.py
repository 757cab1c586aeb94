"""Neighbours run where and when they should, and never longer than the run they disturb.

The probe's rows survive a kill, and its curve says how large the cache really is.

Readings are taken on a clock of their own and journaled as they come.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.interference import neighbours
from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.cache_probe import (
    COLUMNS,
    CacheProbe,
    effective_mib,
    ticks,
)
from forerun.data.collectors.interference.neighbours import (
    DUTY,
    ISOLATED,
    PHASES_S,
    STRESSORS,
    Neighbour,
    State,
    phases,
)
from forerun.data.collectors.interference.run import Sampler
from forerun.data.collectors.runner.journal import LineJournal
from forerun.data.collectors.system.host_inventory import all_sources
from forerun.data.errors import BadTable, MissingData
from tests.data.collectors.processes import runs
from tests.data.collectors.recorded import V2, tree
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
        (State("cache", "huge", "other"), BadTable, "'huge' is not one of low, medium, high"),
        (State("cache", "high", "here"), BadTable, "'here' is not one of other, same"),
        (
            State("cache", "high", "same", "often"),
            BadTable,
            "'often' is not one of static, dynamic",
        ),
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


HEAD = ",".join(COLUMNS)
ROW = "12.5,0.1,22.5,30,0.05,38,0.5,69"


def test_rows_are_read_and_torn_ones_and_heads_are_passed_over():
    text = f"{HEAD}\n{ROW}\n{ROW[:-4]}\n{HEAD}\n{ROW}\n12.6,0.1"
    found = list(ticks(text))
    assert len(found) == 2
    assert found[0]["latency_ns"] == 22.5
    assert list(ticks("")) == []


def test_the_effective_size_is_where_loads_become_slow():
    curve = [{"mib": m, "ns": 12.0 if m <= 6 else 140.0} for m in (1, 2, 4, 6, 8, 16, 64)]
    assert effective_mib(curve) == 6
    assert effective_mib([]) is None
    assert effective_mib([{"mib": 8.0, "ns": 100.0}]) is None


@needs_compiler
def test_it_writes_a_row_a_tick_until_it_is_stopped(tmp_path, compiled):
    probe = CacheProbe(tmp_path / "probe.csv", -1, 5.0)
    probe.start()
    try:
        eventually(lambda: len(list(ticks(probe.path.read_text()))) >= 3)
    finally:
        probe.stop()
    probe.stop()
    rows = list(ticks(probe.path.read_text()))
    assert all(row["latency_ns"] > 0 and 0 <= row["evicted"] <= 1 for row in rows)
    times = [row["t_s"] for row in rows]
    assert times == sorted(times)


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
