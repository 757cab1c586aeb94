"""A program of the user's own is run alone and with one load, and its times are stored."""

import os
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest

from forerun.data.collectors.interference import collection as own_program
from forerun.data.collectors.interference import neighbours
from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.collection import OwnProgram
from forerun.data.collectors.interference.neighbours import ISOLATED, ONE_LOAD
from forerun.data.collectors.interference.tables import build
from forerun.data.collectors.system.host_inventory import usable_cpus
from forerun.data.errors import FailedProgram, MissingTool
from forerun.features.tables.contention import colocations

pytestmark = [
    pytest.mark.skipif(native.compiler() is None, reason="no C compiler here"),
    pytest.mark.usefixtures("compiled", "quick"),
]
ONE = usable_cpus()[:1]
BUSY = "import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass"


@pytest.fixture
def quick(monkeypatch):
    """Loads of our own, a fast clock, no waiting."""
    monkeypatch.setattr(neighbours, "stress_ng", lambda: None)
    fast = replace(own_program.SETTINGS, clock_s=0.05, margin_s=0.1, settle_s=0.05, probe_ms=10)
    monkeypatch.setattr(own_program, "SETTINGS", fast)


def test_runs_alone_and_with_the_load_take_turns_and_make_a_profile(tmp_path):
    before = os.sched_getaffinity(0)
    own = OwnProgram("busy", (sys.executable, "-c", BUSY), repeats=3)
    cpus = sorted(before)
    rows = list(own.run(tmp_path, cpus))
    assert os.sched_getaffinity(0) == before
    assert Counter(row["neighbour"] for row in rows) == Counter(
        state.neighbour for state in own.states(cpus)
    )
    for row in rows:
        assert row["user_s"] + row["system_s"] >= 0.2
        assert row["spawned"] <= row["start"] < row["end"] <= row["stopped"]
    tables = build(tmp_path / "journal", 0.05)
    profile = colocations(tables["runs"], tables["samples"], profiled=True)[0].profile
    assert profile.program == "busy"
    assert profile.cpu_share is not None
    assert 0.0 < profile.cpu_share < 1.1, "one thread, however busy the machine is"
    assert profile.cpu_spread is not None
    assert (profile.p_cpu_beside_cache is None) == (len(cpus) < 2)
    assert "cpu.user_share" in profile.alone.metrics


def test_children_count_as_the_program_s_own_time(tmp_path):
    script = f"{sys.executable} -c '{BUSY}'; true"
    (row, *_) = OwnProgram("script", ("sh", "-c", script), repeats=1).run(tmp_path, ONE)
    assert row["user_s"] + row["system_s"] >= 0.2


def test_one_cpu_has_no_load(tmp_path):
    assert OwnProgram("p", ("true",), repeats=2).states([0]) == [ISOLATED, ISOLATED]
    assert OwnProgram("p", ("true",), repeats=1).states([0, 1]) == [ISOLATED, ONE_LOAD]


def test_a_program_that_fails_says_its_last_line(tmp_path):
    own = OwnProgram("bad", ("sh", "-c", "echo first >&2; echo no input file >&2; exit 3"))
    with pytest.raises(FailedProgram, match=r"^bad ended with code 3: no input file$"):
        list(own.run(tmp_path, ONE))


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingTool, match="'no-such-program'"):
        list(OwnProgram("p", ("no-such-program",)).run(tmp_path, ONE))


def test_an_interrupt_leaves_no_process(tmp_path, monkeypatch):
    started = []

    def interrupted(process, options):
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "wait4", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(OwnProgram("p", ("sleep", "60")).run(tmp_path, ONE))
    time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="one CPU here")
def test_a_load_that_did_not_run_says_nothing_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbours, "stress_ng", lambda: "/bin/false")
    rows = list(OwnProgram("busy", (sys.executable, "-c", BUSY), repeats=2).run(tmp_path))
    with_load = [row["status"] for row in rows if row["neighbour"] != "none"]
    assert set(with_load) == {"neighbour: it did not run"}
    tables = build(tmp_path / "journal", 0.05)
    profile = colocations(tables["runs"], tables["samples"], profiled=True)[0].profile
    assert profile.p_cpu_beside_cache is None
