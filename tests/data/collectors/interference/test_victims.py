"""Work of fixed size: enough kinds, sized by its time, and reported in full."""

import math
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.victim_networks import NETWORKS, inference, timed
from forerun.data.collectors.interference.victims import (
    FAMILIES,
    READY_S,
    VICTIMS,
    calibrate,
    command,
    started,
    time_of_work,
    victim,
)
from forerun.data.errors import MissingData, MissingTool

FIELDS = {
    *("start", "end", "user_s", "system_s", "voluntary_switches", "involuntary_switches"),
    *("minor_faults", "major_faults"),
}
NATIVE = [each for each in VICTIMS if each.native]
needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler here")


pytestmark = pytest.mark.usefixtures("compiled")


def test_there_are_victims_of_every_family_to_leave_out():
    assert len(VICTIMS) >= 14
    counts = {family: sum(each.family == family for each in VICTIMS) for family in FAMILIES}
    assert len(counts) == 5
    assert min(counts.values()) >= 3
    assert len({each.name for each in VICTIMS}) == len(VICTIMS)


def test_an_unknown_victim_is_named_with_those_that_there_are():
    with pytest.raises(MissingData, match=r"'chase3'.*chase0\.5, chase1"):
        victim("chase3")


@given(st.floats(1e-6, 0.1), st.floats(0, 0.01), st.floats(0.5, 4))
def test_work_is_sized_by_the_shorter_of_two_timings(unit_s, start_s, target_s):
    calls = []

    def time_of(units):
        calls.append(units)
        disturbed = 3.0 if len(calls) % 2 else 1.0
        return disturbed * (start_s + units * unit_s)

    units = calibrate(target_s, time_of)
    assert units >= 1
    assert calls == sorted(calls)
    ideal = max(1.0, target_s / unit_s)
    assert ideal / 6 - 1 <= units <= 1.1 * ideal + 1
    steady = calibrate(target_s, lambda units: units * unit_s)
    assert math.isclose(steady, ideal, rel_tol=0.01, abs_tol=1)


@pytest.mark.parametrize(
    ("cpu_s", "waited_s", "taken"),
    [(2.0, 3.0, 2.0), (0.1, 3.0, 2.0), (4.0, 4.5, 4.0), (5.0, 0.0, 5.0)],
)
def test_waiting_for_a_cpu_is_no_work(cpu_s, waited_s, taken):
    row = {"start": 10.0, "end": 15.0, "user_s": cpu_s, "system_s": 0.0, "run_delay_s": waited_s}
    assert time_of_work(row) == taken


def test_without_a_compiler_one_line_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingTool, match=r"No C compiler .* victims\.c"):
        native.program("victims")


@needs_compiler
def test_a_program_is_compiled_once(monkeypatch):
    built = native.program("victims")
    monkeypatch.setattr(native, "finished", None)
    assert native.program("victims") == built


@needs_compiler
def test_a_source_that_does_not_compile_is_refused_in_one_line(monkeypatch, tmp_path):
    (tmp_path / "broken.c").write_text("int main( {")
    monkeypatch.setattr(native, "SOURCES", tmp_path)
    with pytest.raises(MissingTool, match=r"cannot build broken\.c") as refused:
        native.program("broken")
    assert "\n" not in str(refused.value)


@needs_compiler
@pytest.mark.parametrize("who", NATIVE, ids=lambda who: who.name)
def test_each_native_victim_works_and_says_what_it_took(who, tmp_path):
    with started(who, 3, -1, tmp_path) as worker:
        worker.wait_ready(READY_S)
        worker.go()
        row = worker.result(60)
    assert set(row) >= FIELDS
    assert row["end"] > row["start"]
    assert row.get("run_delay_s", 0.0) >= 0
    assert min(row[name] for name in FIELDS) >= 0
    assert list(tmp_path.iterdir()) == [], "it leaves no file behind"


@needs_compiler
def test_a_victim_that_does_not_exist_ends_at_once(tmp_path):
    words = command(NATIVE[0], 1, -1, tmp_path)
    words[2] = "sleeping"
    assert subprocess.run(words, capture_output=True).returncode == 2


SHAPES = {"convnet": (1, 512, 1, 1), "perceptron": (1, 512), "transformer": (1, 48, 256)}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_valid_small_and_run(name, tmp_path):
    import numpy as np
    import onnx

    content = NETWORKS[name]()
    onnx.checker.check_model(onnx.load_from_string(content))
    who = victim(name)
    assert who.family == "inference"
    assert len(content) / 2**20 == pytest.approx(who.working_set_mib, rel=0.25)
    (answer,) = inference(name, tmp_path)()
    assert answer.shape == SHAPES[name]
    assert np.isfinite(answer).all()
    assert (tmp_path / f"{name}.onnx").read_bytes() == content, "the same network each time"


def test_what_runs_in_python_reports_as_the_native_ones_do():
    row = timed(lambda: sum(range(1000)), 5)
    assert set(row) - {"run_delay_s"} == FIELDS
    assert row["end"] >= row["start"]
