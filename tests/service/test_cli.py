"""The command line: JSON alone on standard output, one clear line and exit 2 for wrong input."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from threading import Event

import pytest

from forerun.service import cli
from forerun.service.cli import output
from forerun.service.cli.output import print_json
from tests.service.conftest import GRAPH
from tests.service.real_server import real_server
from tests.waiting import eventually

FORERUN = Path(sys.executable).parent / "forerun"


@pytest.fixture
def variables(tmp_path, roofline_folder):
    """The environment of a `forerun` that answers with the roofline alone."""
    return {"FORERUN_HOME": str(tmp_path), "FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}


@pytest.fixture
def run(variables, monkeypatch, capsys):
    """`forerun` in this process, which has imported what it needs."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def call(*words: str) -> subprocess.CompletedProcess:
        monkeypatch.setattr(sys, "argv", ["forerun", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return subprocess.CompletedProcess(words, left.value.code or 0, *capsys.readouterr())

    return call


@pytest.fixture
def process(variables):
    """`forerun` as a user runs it."""

    def call(*words: str, without: str = "") -> subprocess.CompletedProcess:
        own = {name: value for name, value in variables.items() if name != without}
        return subprocess.run(
            [str(FORERUN), *words],
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


@pytest.fixture
def graph(tmp_path) -> str:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GRAPH.to_json()))
    return str(path)


def test_predict_prints_one_json_object_and_nothing_else(process, graph):
    done = process("predict", graph, "--device", "l4", "--precision", "fp16", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["device"]["name"] == "l4"
    assert answer["metrics"]["latency_ms"]["value"] > 0


def test_predict_compares_devices_for_people(run, graph):
    done = run("predict", graph, "--device", "l4,t4", "--device", "v100", "--explain")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = {
        name: [line for line in lines if line.startswith(name)] for name in ("l4", "t4", "v100")
    }
    assert all(len(found) == 1 for found in rows.values())
    assert all(found[0].count(" ms") == 2 for found in rows.values()), "estimate and bound"
    assert "\x1b[" not in done.stdout


def test_predict_shows_one_device_in_full(run, graph):
    done = run("predict", graph, "--device", "l4", "--explain")
    assert done.returncode == 0, done.stderr
    expected = ("on l4", "latency_ms", "bound", "where the time goes: linear", "not known")
    assert all(part in done.stdout for part in expected)
    assert "\x1b[" not in done.stdout


def test_devices_lists_the_catalogue_and_one_sheet_with_sources(run):
    listed = json.loads(run("devices", "--json").stdout)["devices"]
    assert run("devices", "list", "--json").stdout == run("devices", "--json").stdout
    assert len(listed) >= 45
    sheet = run("devices", "l4")
    assert "memory_bandwidth_gbs: 300" in sheet.stdout


def test_trace_writes_a_graph_that_predict_reads(run, graph, tmp_path):
    output = tmp_path / "again.json"
    done = run("trace", graph, "-o", str(output))
    assert done.returncode == 0, done.stderr
    assert GRAPH.digest in done.stderr
    assert run("predict", str(output), "--device", "l4").returncode == 0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("FORERUN_PORT", "abc", "FORERUN_PORT is 'abc'"),
        ("FORERUN_MAX_UPLOAD_MIB", "0", "FORERUN_MAX_UPLOAD_MIB is '0'"),
        ("FORERUN_PREDICTOR_FOLDER", "/nowhere", "/nowhere"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_2(process, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    done = process("serve", "--port", "0", without=variable)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_port_in_use_is_reported_before_anything_else(process):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = process("serve", "--port", port)
    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr
    assert done.stdout == ""


def test_a_fault_of_ours_is_one_line_and_exit_1(monkeypatch, capsys):
    def broken():
        raise RuntimeError("boom")

    monkeypatch.delenv("FORERUN_DEBUG", raising=False)
    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_line_that_serve_prints_works_as_it_stands(tmp_path, roofline_folder):
    environment = {"FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}
    with real_server(tmp_path, environment=environment, until=None) as server:
        eventually(lambda: "  forerun predict" in server.log.read_text())
        printed = server.log.read_text()
        command = printed[printed.index("  curl") : printed.index("  forerun predict")]
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
        answer = json.loads(done.stdout)
        assert answer["device"]["name"] == "l4"
        assert answer["metrics"]["latency_ms"]["value"] > answer["roofline"]["latency_ms"] * 0.999
        assert server.stop() in (0, -signal.SIGTERM)


def test_numbers_that_json_has_not_are_null(capsys):
    print_json({"a": float("nan"), "b": [1.5, float("inf")]})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None]}


def test_the_version_is_that_of_the_package(run):
    found = run("--version")
    assert (found.returncode, found.stdout) == (0, f"forerun {version('forerun')}\n")


class Terminal(io.StringIO):
    """Standard error that is a terminal, and tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        if "reading model.onnx" in self.getvalue():
            self.written.set()
        return done


def on_terminal(monkeypatch) -> Terminal:
    """A terminal in place of standard error; pytest would take it back at the end of a fixture."""
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_what_takes_long_is_named_until_it_is_done(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with output.working("reading model.onnx", after_s=0.0):
        assert terminal.written.wait(30), terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K"), "the line vanishes"


def test_what_is_quick_prints_nothing(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with output.working("reading model.onnx", after_s=3600.0):
        pass
    assert terminal.getvalue() == ""


def test_what_fails_passes_its_error_on_and_leaves_no_line(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with pytest.raises(ValueError, match="damaged"), output.working("reading model.onnx", 0.0):
        assert terminal.written.wait(30), terminal.getvalue()
        raise ValueError("damaged")
    assert terminal.getvalue().endswith("\x1b[2K")


def test_a_file_in_place_of_a_terminal_gets_nothing(monkeypatch):
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with output.working("reading model.onnx", after_s=0.0):
        pass
    assert plain.getvalue() == ""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["forerun", "forerun.service.cli"])
def test_python_runs_the_command_line_as_a_module(module):
    words = [sys.executable, "-m", module, "--version"]
    assert subprocess.check_output(words, text=True) == f"forerun {version('forerun')}\n"
