"""Counters of the kernel, opened for real where that is allowed: its software events."""

import os
import struct
import time
from pathlib import Path

import pytest

from forerun.data.collectors.system import host_inventory as perf
from forerun.data.collectors.system.host_inventory import (
    SOFTWARE,
    PerfCounters,
    perf_counters,
    usable_cpus,
)

ROOT = Path("/")
OPEN = Path("/proc/self/fd")
CLOCK = {"clock": (SOFTWARE, 0)}


@pytest.fixture
def allowed():
    """Skips where the kernel gives counters to nobody like us."""
    try:
        with perf_counters(usable_cpus()[:1], CLOCK):
            pass
    except OSError as error:
        pytest.skip(f"no perf_event_open here: {error}")


@pytest.mark.usefixtures("allowed")
def test_a_clock_of_the_kernel_goes_on_while_we_sleep_and_files_are_closed():
    (cpu, *_) = usable_cpus()
    before = len(list(OPEN.iterdir()))
    with perf_counters([cpu], CLOCK) as counters:
        first = counters.read(ROOT).cumulative[f"perf.cpu{cpu}.clock"]
        time.sleep(0.2)
        second = counters.read(ROOT).cumulative[f"perf.cpu{cpu}.clock"]
    assert (second - first) / 1e9 >= 0.9 * 0.2, "a sleep lasts at least as long as it says"
    assert len(list(OPEN.iterdir())) == before


def test_what_was_counted_for_part_of_the_time_is_scaled(tmp_path):
    path = tmp_path / "counter"
    readings = (0, 50, 0), (1000, 450, 100), (1100, 550, 200), (1100, 650, 200)
    path.write_bytes(b"".join(struct.pack("=QQQ", *one) for one in readings))
    file = os.open(path, os.O_RDONLY)
    try:
        counters = PerfCounters({(3, "cycles"): file})
        assert counters.read(ROOT).cumulative == {}, "never counted is not zero"
        totals = [counters.read(ROOT).cumulative["perf.cpu3.cycles"] for _ in readings[1:]]
        assert totals == [4500.0, 4600.0, 4600.0], "a later share does not change what was before"
    finally:
        os.close(file)


def test_a_refusal_closes_what_was_opened(monkeypatch, tmp_path):
    path = tmp_path / "counter"
    path.touch()
    opened = []

    def some(cpu, kind, number):
        if opened:
            raise PermissionError(13, "Permission denied")
        opened.append(os.open(path, os.O_RDONLY))
        return opened[0]

    monkeypatch.setattr(perf, "_opened", some)
    with pytest.raises(PermissionError), perf_counters([0, 1]):
        raise AssertionError("not all could be opened")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_an_unknown_machine_is_refused(monkeypatch):
    monkeypatch.setattr(perf.platform, "machine", lambda: "vax")
    with pytest.raises(OSError, match="vax"), perf_counters([0]):
        pass
