"""The host's own description, from recorded trees.

Load of other processes: seen, waited out within limits, and written into the row.

Energy counters of processors, from recorded trees: what counts, wraparound, and refusals.
"""

import os

import pytest

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.runner.trial import Trial
from forerun.data.collectors.system.host import (
    OtherLoad,
    QuietWait,
    Rapl,
    Ticks,
    cgroup_limits,
    cpu_model,
    cpu_vendor,
    governor,
    host_columns,
    read_ticks,
)
from forerun.data.collectors.workloads.operators import linear
from tests.data.collectors.recorded import tree


@pytest.fixture
def root(tmp_path):
    files = {
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel Xeon\n",
        "proc/self/cgroup": "0::/user.slice/job\n",
        "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "sys/fs/cgroup/user.slice/job/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/user.slice/job/memory.max": f"{2**31}\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    }
    return tree(tmp_path, files)


def test_processor_limits_and_governor_are_read(root):
    assert cpu_model(root) == "Intel Xeon"
    assert cpu_vendor(root) == "intel"
    assert governor(root) == "performance"
    assert cgroup_limits(root) == {"cgroup_cpus": 1.5, "cgroup_memory_mib": 2048}


def test_limits_of_version_1_are_read_too(root):
    mounts = ("cgroup /cg/cpu cgroup rw,cpu 0 0", "cgroup /cg/mem cgroup rw,memory 0 0")
    files = {
        "proc/self/mounts": "\n".join(mounts),
        "proc/self/cgroup": "4:cpu:/job\n3:memory:/job\n",
        "cg/cpu/job/cpu.cfs_quota_us": "200000\n",
        "cg/cpu/job/cpu.cfs_period_us": "100000\n",
        "cg/mem/job/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert cgroup_limits(tree(root, files)) == {"cgroup_cpus": 2.0, "cgroup_memory_mib": None}


def test_no_limit_is_none_not_zero(root):
    group = root / "sys/fs/cgroup/user.slice/job"
    tree(group, {"cpu.max": "max 100000\n", "memory.max": "max\n"})
    assert cgroup_limits(root) == {"cgroup_cpus": None, "cgroup_memory_mib": None}


def test_a_system_that_tells_nothing_is_described_all_the_same(tmp_path):
    row = host_columns(tmp_path)
    assert row["cpu_model"]
    assert row["cpus"] >= 1
    assert row["governor"] is None


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
    text = "cpu  10 1 5 100 2 1 1 7 0 0\ncpu0 1 1 1 1\n"
    found = read_ticks(tree(tmp_path, {"proc/stat": text}))
    assert (found.busy, found.stolen, found.total) == (18, 7, 127)
    assert read_ticks(tree(tmp_path, {"proc/stat": "nothing\n"})) is None
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


RANGE_UJ = 262_143_328_850
"""As Intel's packages of one socket report it."""


@pytest.fixture
def powercap(tmp_path):
    """Two packages with cores and memory, as Linux lays them out, and the MMIO copy of one."""
    counters = {
        "intel-rapl:0": ("package-0", 1_000_000),
        "intel-rapl:0:0": ("core", 600_000),
        "intel-rapl:0:1": ("dram", 200_000),
        "intel-rapl:1": ("package-1", RANGE_UJ - 500_000),
        "intel-rapl:1:0": ("dram", 300_000),
        "intel-rapl-mmio:0": ("package-0", 1_000_000),
    }
    (tmp_path / "intel-rapl").mkdir()
    for folder, (name, counter) in counters.items():
        files = {"name": name, "max_energy_range_uj": RANGE_UJ, "energy_uj": counter}
        tree(tmp_path / folder, {file: f"{content}\n" for file, content in files.items()})
    return tmp_path


def set_counter(powercap, folder, value):
    (powercap / folder / "energy_uj").write_text(f"{value}\n")


def test_packages_and_memory_count_once_and_their_parts_do_not(powercap):
    found = Rapl.find(powercap)
    assert found.reason == ""
    assert {d.name for d in found.domains} == {"package-0", "package-1", "dram-0", "dram-1"}


def test_energy_goes_through_a_wraparound(powercap):
    rapl = Rapl.find(powercap)
    before = rapl.snapshot()
    set_counter(powercap, "intel-rapl:0", 3_000_000)
    set_counter(powercap, "intel-rapl:1", 1_500_000)
    set_counter(powercap, "intel-rapl:0:1", 700_000)
    assert rapl.joules(before, rapl.snapshot()) == pytest.approx(2.0 + 2.0 + 0.5)


def test_a_machine_without_counters_says_so(tmp_path):
    assert "no energy counters" in Rapl.find(tmp_path / "none").reason
    assert "no RAPL package" in Rapl.find(tmp_path).reason


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_counters_that_may_not_be_read_say_so(powercap):
    (powercap / "intel-rapl:0" / "energy_uj").chmod(0)
    assert "PermissionError" in Rapl.find(powercap).reason


def test_counters_that_hold_no_number_say_so(powercap):
    set_counter(powercap, "intel-rapl:0", "busy")
    found = Rapl.find(powercap)
    assert "cannot be read" in found.reason
    assert not found.domains
