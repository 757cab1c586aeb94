"""A collection is carried out, killed, read, and goes on where it stood."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from forerun.data.collectors.interference import neighbours
from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.collection import Collection
from forerun.data.collectors.interference.neighbours import State
from forerun.data.collectors.interference.plan import ContentionPlan, Shared
from forerun.data.collectors.interference.tables import NEAREST, build, write_tables
from forerun.data.collectors.runner.journal import LineJournal
from tests.conftest import REPOSITORY
from tests.data.collectors.processes import runs as group_runs
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="no C compiler here")

PLAN = ContentionPlan(
    ("alu",),
    (Shared(State("cpu", "high", "same")), Shared(State("victim:chase1", "low", "same"))),
    repeats=2,
    isolated=1,
    target_s=0.02,
    settle_s=0.0,
    clock_s=0.05,
    probe_ms=0,
    margin_s=0.0,
)
SCRIPT = """
import sys
from pathlib import Path
from forerun.data.collectors.interference import plan as contention_plan
from forerun.data.collectors.interference import neighbours
from forerun.data.collectors.interference.collection import Collection
from tests.data.collectors.interference.test_collection import PLAN
neighbours.stress_ng = lambda: None
for row in Collection(PLAN, Path(sys.argv[1])).run():
    print(row["key"], flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def own_loads(monkeypatch, compiled):
    """Without stress-ng."""
    monkeypatch.setattr(neighbours, "stress_ng", lambda: None)


def sized(folder):
    """A collection whose work was sized by an earlier session."""
    made = Collection(PLAN, folder)
    made.work.append({"victim": "alu", "units": 20})
    return made


def test_each_run_is_journaled_with_what_it_took_and_cpus_are_as_before(tmp_path):
    before = os.sched_getaffinity(0)
    made = sized(tmp_path / "out")
    rows = list(made.run())
    assert os.sched_getaffinity(0) == before
    assert [row["key"] for row in rows] == [run.key for run in PLAN.runs()]
    assert {row["status"] for row in rows} <= {"ok", "neighbour: it did not run"}
    assert {row["units"] for row in rows} == {20}
    for row in rows:
        assert row["spawned"] <= row["start"] <= row["end"] <= row["stopped"]
    assert made.todo() == []
    assert list(made.run()) == [], "all is done"
    tables = made.write_tables()
    assert len(tables["runs"]) == 6
    assert not (tmp_path / "out" / "scratch").exists()


def test_no_run_begins_after_the_budget(tmp_path):
    made = sized(tmp_path / "out")
    assert list(made.run(budget_minutes=0)) == []
    assert len(list(made.run(budget_minutes=1e-9))) == 0
    assert len(made.todo()) == 6


def test_a_run_that_fails_is_a_row_that_says_so(tmp_path, monkeypatch):
    made = sized(tmp_path / "out")
    monkeypatch.setattr(
        "forerun.data.collectors.interference.run.started",
        lambda *_: neighbours.Worker([sys.executable, "-c", "raise SystemExit(7)"]),
    )
    row = next(iter(made.run()))
    assert row["status"] == "failed: it ended with code 7"
    frame = build(tmp_path / "out" / "journal", 1.0)["runs"]
    assert frame["p_wall"].isna().all()


def test_work_sized_while_other_guests_held_the_cache_is_sized_again(tmp_path, monkeypatch):
    calls = []

    def held_for_a_while(who, units, cpu, scratch):
        calls.append(units)
        return units * (1e-3 if len(calls) > 6 else 5e-3)

    monkeypatch.setattr(
        "forerun.data.collectors.interference.collection.measured", held_for_a_while
    )
    made = Collection(replace(PLAN, target_s=0.5), tmp_path / "out")
    for _ in made.run(budget_minutes=1e-9):
        raise AssertionError("no time for a run")
    assert [row["units"] for row in made.work.rows()] == [500]


def test_a_machine_of_one_cpu_reports_what_it_cannot_do(tmp_path):
    other = Shared(State("cpu", "high", "other"))
    made = Collection(replace(PLAN, states=(other,)), tmp_path, cpus=(0,))
    assert "one CPU only: no neighbour on another one" in made.limits()
    assert {run.state.neighbour for run in made.todo()} == {"none"}


@pytest.mark.slow
def test_a_collector_that_is_killed_leaves_its_rows_and_no_process_and_goes_on(tmp_path):
    out = tmp_path / "out"
    made = sized(out)
    path = os.pathsep.join((str(REPOSITORY), *filter(None, sys.path)))
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        process_group=0,
    )
    with child:
        assert child.stdout.readline().strip() == PLAN.runs()[0].key
        child.stdin.write("\n")
        child.stdin.flush()
        # In the middle of the second run, whose neighbour or victim is at work.
        time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
    kept = list(LineJournal(out / "journal/000/runs.jsonl").rows())
    assert kept
    assert len(write_tables(out, PLAN.clock_s)["runs"]) == len(kept)
    eventually(lambda: not group_runs(child.pid))
    rest = [row["key"] for row in made.run()]
    planned = [run.key for run in PLAN.runs()]
    assert [row["key"] for row in kept] + [key for key in rest if key in planned] == planned
    runs = made.write_tables()["runs"]
    assert set(runs["session"]) == {"000", "001"}
    assert (runs[runs["session"] == "001"]["neighbour"] == "none").sum() >= NEAREST
    assert runs[(runs["session"] == "001") & (runs["status"] == "ok")]["p_cpu"].notna().all()
