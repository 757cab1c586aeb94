"""What /proc says is read in seconds, bytes and MiB; what a kernel does not say is not there.

Control groups are found under version 1, version 2 and both, and mean the same under each.

Counters wrap, are set back or were never read; clocks jump: none of it makes a number up.

Last-level cache and memory bandwidth as resctrl writes them.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.system import procfs
from forerun.data.collectors.system.host_inventory import all_sources, read_all
from forerun.data.collectors.system.procfs import (
    SOURCES,
    Resctrl,
    growth,
    is_gap,
    rates,
    task_times,
)
from tests.data.collectors.recorded import HYBRID, PROC, V1, V2, tree


def read(name):
    source = next(source for source in SOURCES if source.name == name)
    return source.parse(PROC[source.path])


def test_cpu_time_is_in_seconds_by_cpu_and_kind_with_steal():
    found = procfs.stat(PROC["proc/stat"], ticks_per_s=100)
    assert found.cumulative["cpu.steal_s"] == 74.75
    assert found.cumulative["cpu1.user_s"] == 6850.75
    assert found.cumulative["stat.ctxt"] == 15994751
    assert found.gauges == {"stat.procs_running": 4.0, "stat.procs_blocked": 1.0}


def test_an_old_kernel_without_steal_has_no_steal():
    found = procfs.stat("cpu  100 0 50 200\n", ticks_per_s=100)
    assert found.cumulative == {
        "cpu.user_s": 1.0,
        "cpu.nice_s": 0.0,
        "cpu.system_s": 0.5,
        "cpu.idle_s": 2.0,
    }


def test_pressure_is_seconds_stalled_and_the_kernels_average():
    found = read("pressure_cpu")
    assert found.cumulative["pressure.cpu.some_s"] == pytest.approx(6265.64606)
    assert found.gauges["pressure.cpu.some_avg10"] == 1.02


def test_pages_by_state_are_gauges_and_events_are_counters():
    found = read("vmstat")
    assert found.gauges == {"vmstat.nr_free_pages": 5782859.0}
    assert set(found.cumulative) == {
        "vmstat.nr_dirtied",
        "vmstat.workingset_nodes",
        "vmstat.pgfault",
    }


def test_whole_disks_are_summed_once():
    found = read("diskstats")
    assert found.cumulative["disk.reads"] == 3181893
    assert found.cumulative["disk.read_bytes"] == 2000 * 512
    assert found.cumulative["disk.write_s"] == pytest.approx(211.281)
    assert found.cumulative["disk.flushes"] == 9
    assert found.gauges == {"disk.in_flight": 4.0}  # vda 3, nvme0n1 1


def test_loopback_is_apart_from_the_network():
    found = read("net_dev").cumulative
    assert found["net.received_bytes"] == 150
    assert found["net.sent_drops"] == 5
    assert found["lo.sent_packets"] == 229819


def test_run_and_wait_time_of_all_cpus_add_up():
    found = read("schedstat").cumulative
    assert (found["sched.run_s"], found["sched.wait_s"], found["sched.slices"]) == (2.0, 1.0, 10)
    assert found["sched.cpu1.wait_s"] == 0.75


def test_interrupts_are_summed_over_cpus_and_devices_are_left_out():
    assert read("softirqs").cumulative == {"softirq.TIMER": 838363.0, "softirq.SCHED": 3.0}
    assert read("interrupts").cumulative == {"interrupt.LOC": 300000.0, "interrupt.RES": 12.0}


def test_memory_is_in_mib_and_counts_of_pages_are_left_out():
    assert read("meminfo").gauges == {
        "memory.MemTotal_mib": pytest.approx(24105.56, abs=0.01),
        "memory.MemFree_mib": 1.0,
    }


def test_load_says_how_many_run():
    assert read("loadavg").gauges["load.running"] == 2
    assert read("loadavg").gauges["load.5"] == 0.57


def test_a_process_s_times_are_those_of_its_threads():
    assert task_times(["1500000000 250000000 7\n", "500000000 0 1\n"]) == {
        "task.cpu_s": 2.0,
        "task.wait_s": 0.25,
    }
    assert task_times([]) == {}


@given(st.sampled_from(SOURCES), st.data())
def test_a_file_cut_anywhere_is_read_as_far_as_it_goes_or_refused(source, data):
    text = PROC.get(source.path, PROC["proc/pressure/cpu"])
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        found = source.parse(cut)
    except ValueError:
        return
    whole = source.parse(text)
    assert set(found.cumulative) <= set(whole.cumulative)
    assert set(found.gauges) <= set(whole.gauges)


def test_a_source_reads_below_the_root_it_is_given(tmp_path):
    root = tree(tmp_path, PROC)
    assert SOURCES[0].read(root).cumulative["stat.processes"] == 89469
    with pytest.raises(OSError, match="No such file"):
        procfs.Source("gone", "proc/gone", procfs.stat).read(root)


def group(root):
    """What the groups of a tree say."""
    found = read_all(all_sources(root), root)
    both = found.cumulative | found.gauges
    return {name: value for name, value in both.items() if name.startswith("cgroup.")}


def test_without_groups_there_is_nothing_to_read():
    assert procfs.sources(procfs.group_folders("tmpfs /tmp tmpfs rw 0 0\n", "")) == ()
    assert procfs.sources(procfs.group_folders("", "")) == ()


def test_one_of_named_hierarchies_alone_is_none():
    mounts = "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
    assert procfs.sources(procfs.group_folders(mounts, "1:name=systemd:/\n")) == ()


@pytest.mark.parametrize("files", [V1, V2, HYBRID])
def test_both_versions_mean_the_same(files, tmp_path):
    found = group(tree(tmp_path, files))
    assert found["cgroup.cpu.usage_s"] == 2.5
    assert found["cgroup.cpu.throttled_s"] == 0.5
    assert found["cgroup.cpu.nr_throttled"] == 2
    assert found["cgroup.memory.used_mib"] == 3
    assert found["cgroup.io.read_bytes"] == 4097
    assert found["cgroup.io.write_bytes"] == 8192
    assert "cgroup.memory.limit_mib" not in found, "there is no limit"


def test_a_hybrid_takes_pressure_from_version_2_and_the_rest_from_version_1(tmp_path):
    found = group(tree(tmp_path, HYBRID))
    assert found["cgroup.pressure.cpu.some_avg10"] == 2.5
    assert found["cgroup.memory.rss_mib"] == 2
    named = [source.name for source in all_sources(tmp_path) if "v2" in source.name]
    assert named == [f"cgroup v2 {name}.pressure" for name in ("cpu", "io", "memory")]


def test_a_limit_is_reported():
    assert procfs.memory_limit("1048576\n").gauges == {"cgroup.memory.limit_mib": 1.0}


def test_a_tree_without_mounts_has_the_sources_of_proc_alone(tmp_path):
    assert group(tree(tmp_path, PROC)) == {}


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (5, 9, 4),
        (2**32 - 3, 4, 7),
        (2**32 - 1, 0, 1),
        (float(2**64 - 2048), 2048.0, 4096),
        (1000, 10, math.nan),
        (2**40, 10, math.nan),
        (math.nan, 10, math.nan),
    ],
)
def test_a_counter_grows_through_a_wrap_and_is_unknown_when_set_back(before, after, moved):
    assert growth(before, after) == pytest.approx(moved, nan_ok=True)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**29))
def test_a_wrap_of_32_bits_loses_nothing(before, moved):
    assert growth(before, (before + moved) % 2**32) == moved


@given(st.floats(0, 1e18), st.floats(0, 1e18))
def test_growth_is_never_negative(before, after):
    assert not growth(before, after) < 0


def test_a_counter_that_appears_has_no_rate_yet_and_one_that_vanishes_has_none():
    found = rates({"old": 1.0, "kept": 2.0}, {"new": 5.0, "kept": 6.0}, 2.0)
    assert found["kept"] == 2.0
    assert math.isnan(found["new"])
    assert "old" not in found


@pytest.mark.parametrize("seconds", [0.0, -3.0, math.nan])
def test_there_is_no_rate_over_no_time(seconds):
    assert math.isnan(rates({"a": 1.0}, {"a": 2.0}, seconds)["a"])


@pytest.mark.parametrize(
    ("seconds", "gap"), [(1.0, False), (1.4, False), (1.6, True), (-1.0, True), (0.0, True)]
)
def test_readings_too_far_apart_and_clocks_that_jump_leave_a_gap(seconds, gap):
    assert is_gap(seconds, 1.0) is gap


MONITOR = {
    "sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy": "8388608\n",
    "sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes": "123456789\n",
    "sys/fs/resctrl/mon_data/mon_L3_00/mbm_local_bytes": "Unavailable\n",
    "sys/fs/resctrl/mon_data/mon_L3_01/llc_occupancy": "Error\n",
    "sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes": "7\n",
    "sys/fs/resctrl/mon_data/mon_MB_00/other": "1\n",
}


def test_each_cache_is_read_and_what_is_unavailable_is_missing(tmp_path):
    found = Resctrl().read(tree(tmp_path, MONITOR))
    assert found.gauges == {"resctrl.l3_0.llc_occupancy_mib": 8.0}
    assert found.cumulative == {
        "resctrl.l3_0.mbm_total_bytes": 123456789.0,
        "resctrl.l3_1.mbm_total_bytes": 7.0,
    }


def test_it_is_among_the_sources(tmp_path):
    root = tree(tmp_path, MONITOR)
    assert "resctrl.l3_1.mbm_total_bytes" in read_all(all_sources(root), root).cumulative


def test_without_it_nothing_is_made_up(tmp_path):
    with pytest.raises(FileNotFoundError):
        Resctrl().read(tmp_path)
