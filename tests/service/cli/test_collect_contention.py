"""`forerun collect contention`: one line for a plan that is none, tables also when stopped."""

import pytest
from typer.testing import CliRunner

from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.collection import Collection
from forerun.data.errors import BadTable, MissingData, MissingTool
from forerun.service.cli import app
from tests.contracts.tiny_contention import write_journal

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler here")


def collect(plan, output, *more):
    words = ["collect", "contention", "--plan", str(plan), "-o", str(output), *more]
    return CliRunner().invoke(app, words)


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    path = tmp_path / "plan.yaml"
    path.write_text("victims: [alu]\nrepeats: 1\nprobe_ms: 0\nmargin_s: 0\n")
    return path


@needs_compiler
def test_a_plan_that_is_none_is_refused(plan):
    plan.write_text("neighbors: 3\n")
    found = collect(plan, plan.parent / "out")
    assert isinstance(found.exception, BadTable)
    assert not (plan.parent / "out").exists()
    assert isinstance(collect(plan.parent / "no.yaml", plan.parent).exception, MissingData)


def test_without_a_compiler_it_says_what_to_install(plan, monkeypatch):
    monkeypatch.setattr(native, "compiler", lambda: None)
    found = collect(plan, plan.parent / "out")
    assert isinstance(found.exception, MissingTool)
    assert "install one" in str(found.exception)


@needs_compiler
def test_ctrl_c_leaves_tables_of_what_was_collected(plan, monkeypatch):
    out = plan.parent / "out"
    write_journal(out / "journal")

    def interrupted(self, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Collection, "run", interrupted)
    found = collect(plan, out)
    assert found.exit_code == 130
    assert (out / "runs.parquet").is_file()


@needs_compiler
def test_no_budget_makes_tables_of_an_earlier_session_and_runs_nothing(plan):
    out = plan.parent / "out"
    write_journal(out / "journal")
    found = collect(plan, out, "--budget-minutes", "0")
    assert found.exit_code == 0, found.output
    assert "runs 50" in found.stderr
    assert [path.name for path in sorted((out / "journal").iterdir())] == [
        *("000", "cumulative.parquet")
    ]
