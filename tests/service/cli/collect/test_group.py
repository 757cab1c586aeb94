"""`forerun collect` and `forerun verify`: from this machine to a table for `adapt`."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forerun.data.collectors.interference import collection as live_window
from forerun.data.collectors.interference import collection as own_program
from forerun.data.collectors.interference import neighbours
from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.collection import Collection
from forerun.data.collectors.latency import fingerprint
from forerun.data.collectors.system.host import OtherLoad, QuietWait
from forerun.data.collectors.workloads import operators as processor_operators
from forerun.data.collectors.workloads.operators import operator_sweep
from forerun.data.errors import BadTable, MissingData, MissingTool
from forerun.data.measurement import read_measurements
from forerun.data.workload import HostWindow, ProgramProfile
from forerun.service.adaptation import collecting, measurement_files
from forerun.service.adaptation.collecting import read_plan
from forerun.service.cli import app
from forerun.service.cli.collect.program import busy_with_others, called
from forerun.service.schemas.colocation import ProgramIn, WindowIn
from tests.contracts.tiny_contention import write_journal

KINDS = ("linear", "softmax", "layer_norm", "elementwise")
SMALL = tuple(op for op in operator_sweep(4, largest=2**17) if op.kind in KINDS)[:6]


@pytest.fixture
def crowded(monkeypatch):
    """Other tests run on this machine at the same time: nothing waits for them to end."""
    monkeypatch.setattr(OtherLoad, "disturbs", False)


@pytest.fixture
def small(monkeypatch, crowded):
    """Small operators in short windows, in place of the reference operators."""
    monkeypatch.setattr(fingerprint, "reference_operators", lambda: SMALL)
    monkeypatch.setattr(processor_operators, "quick_operators", lambda: SMALL)
    monkeypatch.setattr(collecting, "QUICK_WINDOW_S", 0.02)
    monkeypatch.setattr(collecting, "UNSTEADY", 1e9)
    one = {"cpu-inverted-b": collecting.ONNX_NETWORKS["cpu-inverted-b"]}
    monkeypatch.setattr(collecting, "ONNX_NETWORKS", one)
    # No row is left out for what ran at the same time.
    monkeypatch.setattr(measurement_files, "crowded", lambda rows: rows["status"].isna())


@pytest.mark.slow
def test_adapt_takes_what_was_collected_about_a_machine_that_nobody_described(
    forerun, small, tmp_path
):
    table = tmp_path / "q.parquet"
    words = ("collect", "cpu", "--quick", "-o", table, "--threads", 1, "--json")
    code, out, err = forerun(*words, "--device", "my-cpu")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["rows"] == facts["status"]["ok"] == len(SMALL) + 1
    assert facts["median_spread"] >= 0
    assert "my-cpu is registered" in err
    rows = read_measurements(table)
    assert set(rows["kind"]) == {"kernel", "network"}
    assert (rows["runtime"] == "onnxruntime").all()
    assert (rows["threads"] == 1).all()
    assert forerun.json("adapt", table, "--device", "my-cpu")["rows"] == len(SMALL) + 1
    assert json.loads(forerun.ok(*words))["resumed"] == len(SMALL) + 1


@pytest.mark.slow
def test_without_torch_onnxruntime_measures_and_says_so(forerun, crowded, monkeypatch, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "window_s: 0.01\nreference_networks: false\n"
        "operators: {step: 64, largest_mib: 0.3, runtimes: [onnxruntime, eager]}\n"
        "networks: [{names: [resnet18]}]\n"
    )
    from forerun.data.collectors.latency import cpu
    from forerun.data.collectors.system import host

    known = host.library
    without = lambda name: None if name == "torch" else known(name)  # noqa: E731
    for module in (cpu, host):
        monkeypatch.setattr(module, "library", without)
    table = tmp_path / "t.csv"
    budget = ("--budget-minutes", 0.05)
    code, _, err = forerun("collect", "cpu", "--plan", plan, "-o", table, *budget)
    assert code == 0, err
    assert "torch is not installed" in err
    assert set(read_measurements(table)["framework"]) == {"onnxruntime"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("cpu", "-o", "t.txt"), "ends in .parquet or .csv"),
        (("cpu", "-o", "t.csv", "--plan", "none.yaml"), "No plan none.yaml"),
        (("cpu", "-o", "t.csv", "--plan", "p.yaml", "--quick"), "not both"),
        (("gpu", "-o", "t.csv"), "Cannot measure here: torch"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(forerun, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    assert says in forerun.refused("collect", *words)


def test_a_plan_that_is_wrong_is_refused(tmp_path):
    plan = tmp_path / "p.yaml"
    for text, says in (
        ("networks: [{names: [nothing]}]", "no network 'nothing'"),
        ("onnx_files: [gone.onnx]", "gone.onnx"),
    ):
        plan.write_text(text)
        with pytest.raises(Exception, match=says):
            read_plan(plan).trials(tmp_path / "t.csv", tmp_path)
    plan.write_text("networks: [{names: [x], batch_size: 3}]")
    with pytest.raises(Exception, match="batch_size"):
        read_plan(plan)


def test_the_standard_plan_is_sound_and_covers_runtimes_and_phases(tmp_path, small):
    plan = read_plan(Path("cpu-standard"))
    trials = plan.trials(tmp_path / "t.csv", tmp_path)
    assert {t.runtime for t in trials} == {"onnxruntime", "eager", "compiled"}
    assert {t.phase for t in trials} == {"inference", "training"}
    assert len({t.key for t in trials}) == len(trials) > 200


def test_graphs_of_a_table_measured_elsewhere_are_added(forerun, tmp_path):
    pytest.importorskip("torch")
    table = tmp_path / "h200.csv"
    table.write_text(
        "workload,kind,batch_size,device,status,latency_ms\n"
        "squeezenet,network,1,l4,ok,0.6\nsqueezenet,network,16,l4,ok,2.6\n"
    )
    forerun.ok("collect", "graphs", table)
    assert (tmp_path / "h200-graphs" / "squeezenet.json").is_file()
    assert forerun.json("adapt", table, "--device", "l4")["rows"] == 2


@pytest.mark.skipif(native.compiler() is None, reason="no C compiler here")
def test_a_program_profiled_here_is_one_that_colocation_takes(forerun, monkeypatch, tmp_path):
    monkeypatch.setattr(neighbours, "stress_ng", lambda: None)
    fast = replace(own_program.SETTINGS, clock_s=0.05, margin_s=0.1, settle_s=0.05, probe_ms=10)
    monkeypatch.setattr(own_program, "SETTINGS", fast)
    busy = "import time; e = time.process_time() + 0.15\nwhile time.process_time() < e: pass"
    command = ("--name", "busy", "--repeats", 3, "--working-set-mib", 2, "--")
    code, out, err = forerun("collect", "program", *command, sys.executable, "-c", busy)
    assert code == 0, err
    known = ProgramIn.model_validate_json(out)
    assert (known.name, known.working_set_mib) == ("busy", 2.0)
    assert known.cpu_share is not None
    assert "cpu.user_share" in known.alone
    assert "busy alone:" in err
    for words, said in (
        (("-o", tmp_path / "p.json", "--", "no-such-program"), "'no-such-program'"),
        (("-o", tmp_path / "none" / "p.json", "--", "true"), "No folder"),
        (("--name", "chase4", "--", "true"), "give it a --name"),
    ):
        assert said in forerun.refused("collect", "program", *words)


def test_a_program_is_called_by_its_script_where_an_interpreter_runs_it(tmp_path):
    script = tmp_path / "walk.py"
    script.touch()
    assert called(["python3", "-u", str(script), "8"]) == "walk.py"
    assert called(["/usr/bin/python3", "-c", "pass"]) == "python3"
    assert called(["./solve", str(script)]) == "solve"
    assert called(["sha256sum", str(script)]) == "sha256sum", "begins as a shell does"


def test_what_ends_too_soon_for_a_profile_makes_none(forerun, monkeypatch, tmp_path):
    fast = replace(own_program.SETTINGS, margin_s=0.1, settle_s=0.05, probe_ms=10)
    monkeypatch.setattr(own_program, "SETTINGS", fast)
    words = ("--repeats", "3", "-o", tmp_path / "p.json", "--", sys.executable, "-c", "pass")
    assert "too soon for a profile" in forerun.refused("collect", "program", *words)
    assert not (tmp_path / "p.json").exists()


def test_a_profile_made_next_to_other_programs_says_so():
    quiet = HostWindow(("cpu.user_share", "cpu.system_share"), ((0.97, 0.04),))
    loud = HostWindow(("cpu.user_share", "cpu.system_share"), ((1.9, 0.1),))
    assert busy_with_others(ProgramProfile("p", quiet, cpu_share=0.98)) == pytest.approx(0.03)
    assert busy_with_others(ProgramProfile("p", loud, cpu_share=0.98)) == pytest.approx(1.02)
    assert busy_with_others(ProgramProfile("p")) == 0.0


def test_a_window_of_this_host_is_one_that_colocation_takes(forerun, monkeypatch):
    fast = replace(own_program.SETTINGS, clock_s=0.1, margin_s=0.1, probe_ms=10)
    monkeypatch.setattr(own_program, "SETTINGS", fast)
    monkeypatch.setattr(live_window, "SETTINGS", fast)
    out = forerun.ok("collect", "window", "--seconds", 3, "--process", os.getpid())
    parsed = WindowIn.model_validate_json(out)
    assert 1 <= len(parsed.seconds) <= 3, "a busy machine may miss whole seconds"
    assert {"cpu.user_share", "task.cpu_share"} <= set(parsed.metrics)
    assert not [name for name in parsed.metrics if name.startswith("own_cpu.")]
    pinned = subprocess.Popen(["sleep", "20"])
    try:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pinned.pid, cpus[:1])
        out = forerun.ok("collect", "window", "--seconds", 3, "--process", pinned.pid)
    finally:
        pinned.kill()
        pinned.wait()
    parsed = WindowIn.model_validate_json(out)
    own = [name for name in parsed.metrics if name.startswith("own_cpu.")]
    assert bool(own) == (len(cpus) > 1), "a process that is pinned has a CPU of its own"
    assert "No process 4194305" in forerun.refused("collect", "window", "--process", 2**22 + 1)


@pytest.fixture
def model(tmp_path):
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
    )
    file = tmp_path / "tiny.onnx"
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, ir_version=8, opset_imports=opsets), file)
    return file


@pytest.mark.slow
def test_a_model_is_verified(forerun, model, monkeypatch):
    monkeypatch.setattr(QuietWait, "wait", lambda self: None)
    options = ("--seconds", 0.02, "--threads", 1)
    assert "tiny.onnx on my-cpu" in forerun.ok("verify", model, "--batch-size", "2,64", *options)
    answer = json.loads(forerun.ok("verify", model, "--json", *options))
    assert {row["batch_size"] for row in answer["results"]} == {1}
    assert answer["results"][0]["measured"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.onnx",), "there is no such file"),
        (("MODEL", "--batch-size", "two"), "--batch-size 'two'"),
        (("MODEL", "--batch-size", "0"), "give numbers from 1"),
        (("MODEL", "--device", "l4"), "l4 is a gpu"),
    ],
)
def test_what_cannot_be_verified_is_refused_in_one_line(forerun, model, words, said):
    err = forerun.refused("verify", *(model if word == "MODEL" else word for word in words))
    assert said in err
    assert len(err.strip().splitlines()) == 1


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
