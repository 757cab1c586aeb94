"""A source that is not there is said to be missing, with the reason, and is never zero."""

import platform
import socket

from forerun.data.collectors import guest
from forerun.data.collectors.guest import (
    all_sources,
    availability,
    facts,
    hardware_counters,
    read_all,
    read_task,
)
from tests.data.collectors.recorded import V1, V2, tree


def test_each_source_is_available_or_says_why_not(tmp_path):
    root = tree(tmp_path, V2)
    (root / "proc/loadavg").write_text("not numbers at all here\n")
    (root / "proc/softirqs").write_text("")
    found = availability(all_sources(root), root)
    assert found["stat"]["available"]
    assert found["pressure_io"] == {"available": False, "reason": "no such file or directory"}
    assert found["loadavg"] == {"available": False, "reason": "its text is not understood"}
    assert found["softirqs"] == {"available": False, "fields": 0, "reason": "it holds nothing"}
    assert found["cgroup v2 memory.current"]["available"]
    assert found["resctrl"] == {"available": False, "reason": "no such file or directory"}
    assert found["libvirt"] == {"available": False, "reason": "no /run/libvirt/libvirt-sock"}


def test_a_machine_without_hardware_counters_says_why(monkeypatch):
    def refused(cpus):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(guest, "perf_counters", refused)
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
