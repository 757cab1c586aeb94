"""Load of other processes: seen, waited out within limits, and written into the row."""

import pytest

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.runner.trial import Trial
from forerun.data.collectors.system.host import OtherLoad, QuietWait, Ticks, read_ticks
from forerun.data.collectors.workloads.operators import linear


def readings(*busy):
    """Readings a hundred ticks apart, of which so many are busy with others' work."""
    total, used = 0.0, 0.0
    yield Ticks(0, 0, 0, 0)
    for share in busy:
        total, used = total + 100, used + 100 * share
        yield Ticks(used, 0, total, 0)
    while True:
        total += 100
        yield Ticks(used, 0, total, 0)


def waiting(*busy, **how):
    source = readings(*busy)
    return QuietWait(read=lambda: next(source), sleep=lambda seconds: None, **how)


def test_own_work_is_no_load_of_others():
    seen = OtherLoad.between(Ticks(0, 0, 0, 0), Ticks(60, 0, 200, 50))
    assert seen.busy_share == pytest.approx(0.05)
    assert not seen.disturbs
    assert OtherLoad.between(Ticks(0, 0, 0, 0), Ticks(60, 0, 200, 0)).disturbs
    assert OtherLoad.between(Ticks(0, 0, 0, 0), Ticks(0, 20, 200, 0)).disturbs


def test_a_quiet_machine_is_not_waited_for():
    wait = waiting(0.0)
    assert wait.wait() == OtherLoad(0.0, 0.0)
    assert wait.waited_s == 0


def test_load_is_waited_out():
    # Two readings a look: busy, idle between, busy, idle, quiet.
    wait = waiting(0.9, 0.0, 0.9, 0.0, 0.0)
    assert not wait.wait().disturbs
    assert wait.waited_s == pytest.approx(0.5)


def test_waiting_has_its_limits():
    wait = waiting(*[0.9] * 100, most_s=2.0, left_s=3.0)
    assert wait.wait().disturbs
    assert wait.waited_s <= 2.0
    wait.wait()
    assert wait.waited_s <= 3.0


def test_the_kernels_line_is_read(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  10 1 5 100 2 1 1 7 0 0\ncpu0 1 1 1 1\n")
    found = read_ticks(tmp_path)
    assert (found.busy, found.stolen, found.total) == (18, 7, 127)
    (tmp_path / "proc/stat").write_text("nothing\n")
    assert read_ticks(tmp_path) is None
    assert QuietWait(read=lambda: None).wait() is None


def test_a_disturbed_trial_is_run_again_and_the_faster_run_counts(monkeypatch):
    times = iter((33.0, 20.0))
    monkeypatch.setattr(
        CpuRun, "apart", lambda self, trial: {"status": "ok", "latency_ms": next(times)}
    )
    collector = CpuCollector(how=CpuRun(1), quiet=waiting(0.0, 0.0, 0.9))
    row = collector.measure(Trial(linear(1, 8, 8), framework="onnxruntime", runtime="onnxruntime"))
    assert row["latency_ms"] == 20.0
    assert {"others_share", "stolen_share", "disturbed"} <= set(row)
