"""What /proc says is read in seconds, bytes and MiB; what a kernel does not say is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.system import procfs
from forerun.data.collectors.system.procfs import SOURCES, task_times
from tests.data.collectors.recorded import PROC, tree


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
