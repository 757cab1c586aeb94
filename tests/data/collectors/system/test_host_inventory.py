"""A source that is not there is said to be missing, with the reason, and is never zero.

Virtual machines as `virsh domstats --raw` tells of them.

Counters of the kernel, opened for real where that is allowed: its software events.
"""

import os
import platform
import socket
import struct
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from forerun.data.collectors.system import host_inventory
from forerun.data.collectors.system.host_inventory import (
    SOCKET,
    SOFTWARE,
    Libvirt,
    PerfCounters,
    all_sources,
    availability,
    facts,
    hardware_counters,
    machines,
    perf_counters,
    read_all,
    read_task,
    usable_cpus,
)
from tests.data.collectors.recorded import V1, V2, tree


def test_each_source_is_available_or_says_why_not(tmp_path):
    root = tree(tmp_path, V2)
    (root / "proc/loadavg").write_text("not numbers at all here\n")
    (root / "proc/softirqs").write_text("")
    found = availability(all_sources(root), root)
    assert found["stat"]["available"]
    assert found["pressure_io"] == {"available": False, "reason": "no such file or directory"}
    assert found["loadavg"] == {"available": False, "reason": "its text cannot be parsed"}
    assert found["softirqs"] == {"available": False, "fields": 0, "reason": "it holds nothing"}
    assert found["cgroup v2 memory.current"]["available"]
    assert found["resctrl"] == {"available": False, "reason": "no such file or directory"}
    assert found["libvirt"] == {"available": False, "reason": "no /run/libvirt/libvirt-sock"}


def test_a_machine_without_hardware_counters_says_why(monkeypatch):
    refused = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(host_inventory, "perf_counters", refused)
    with hardware_counters([0]) as counters:
        (row,) = availability([counters]).items()
    assert row == ("perf hardware counters", {"available": False, "reason": "permission denied"})


def test_a_missing_source_is_missing_from_the_reading(tmp_path):
    root = tree(tmp_path, V1)
    (root / "proc/diskstats").unlink()
    found = read_all(all_sources(root), root)
    assert not [name for name in (*found.cumulative, *found.gauges) if name.startswith("disk.")]
    assert found.cumulative["vmstat.pgfault"] == 61263


def test_a_process_that_is_gone_has_no_times(tmp_path):
    assert read_task(1, tmp_path) == {}
    tree(tmp_path, {"proc/1/task/1/schedstat": "2000000000 1000000000 5\n"})
    assert read_task(1, tmp_path) == {"task.cpu_s": 2.0, "task.wait_s": 1.0}


def test_the_machine_is_described_without_its_name(tmp_path):
    root = tree(tmp_path, V2 | {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise]\n"})
    found = facts(2, root)
    assert found["cpu_model"] == "Made Up CPU"
    assert found["virtual"] is True
    assert found["vcpus"] == 2
    assert found["transparent_hugepages"] == "madvise"
    named = {platform.node(), socket.gethostname()} & set(map(str, found.values()))
    assert not named


OUTPUT = Path(__file__).with_name("domstats.txt").read_text()


def test_what_a_machine_has_several_of_is_added_up_and_no_name_is_kept():
    found = machines(OUTPUT, {})
    web = {name: v for name, v in found.cumulative.items() if name.startswith("libvirt.vm0.")}
    assert web == {
        "libvirt.vm0.cpu_s": 5.0,
        "libvirt.vm0.cpu_user_s": 1.0,
        "libvirt.vm0.vcpu_delay_s": 1.0,
        "libvirt.vm0.net_rx_bytes": 111.0,
        "libvirt.vm0.disk_read_s": 2.0,
    }
    assert found.cumulative["libvirt.vm1.cpu_s"] == pytest.approx(1e-9)
    assert found.gauges == {"libvirt.vm0.memory_mib": 2048.0}
    assert not [name for name in (*found.cumulative, *found.gauges) if "web" in name]


def test_a_machine_that_is_gone_does_not_renumber_the_others():
    numbers = {}
    machines(OUTPUT, numbers)
    later = OUTPUT[OUTPUT.index("Domain: 'batch'") :] + "Domain: 'new'\n  cpu.time=7\n"
    assert set(machines(later, numbers).cumulative) == {"libvirt.vm1.cpu_s", "libvirt.vm2.cpu_s"}


def test_an_empty_output_gives_no_reading():
    assert machines("", {}) == machines("error: failed to connect\n", {})
    assert machines("", {}).cumulative == {}


def the_tool(tmp_path, monkeypatch, script):
    """A host on which libvirt runs, with this in place of virsh."""
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    (tmp_path / SOCKET).touch()
    tool = tmp_path / "virsh"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(host_inventory.shutil, "which", lambda name: str(tool))
    return tmp_path


def test_the_tool_is_asked_where_libvirt_runs(tmp_path, monkeypatch):
    root = the_tool(tmp_path, monkeypatch, f"cat <<'END'\n{OUTPUT}END")
    assert Libvirt().read(root) == machines(OUTPUT, {})


@pytest.mark.parametrize("script", ["exit 1", "exec sleep 60"])
def test_a_tool_that_refuses_or_hangs_does_not_stop_the_clock(tmp_path, monkeypatch, script):
    monkeypatch.setattr(host_inventory, "LONGEST_S", 0.1)
    with pytest.raises(OSError, match="virsh: "):
        Libvirt().read(the_tool(tmp_path, monkeypatch, script))


def test_a_machine_without_libvirt_is_recognised(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=f"no /{SOCKET}"):
        Libvirt().read(tmp_path)
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    (tmp_path / SOCKET).touch()
    monkeypatch.setattr(host_inventory.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="no virsh"):
        Libvirt().read(tmp_path)


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

    monkeypatch.setattr(host_inventory, "_opened", some)
    with pytest.raises(PermissionError), perf_counters([0, 1]):
        raise AssertionError("not all could be opened")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_an_unknown_machine_is_refused(monkeypatch):
    monkeypatch.setattr(host_inventory.platform, "machine", lambda: "vax")
    with pytest.raises(OSError, match="vax"), perf_counters([0]):
        pass
