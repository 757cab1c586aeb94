"""The host's own description, from recorded trees."""

import pytest

from forerun.data.collectors.system.host import (
    cgroup_limits,
    cpu_model,
    cpu_vendor,
    governor,
    host_columns,
)


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
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


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
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert cgroup_limits(root) == {"cgroup_cpus": 2.0, "cgroup_memory_mib": None}


def test_no_limit_is_none_not_zero(root):
    (root / "sys/fs/cgroup/user.slice/job/cpu.max").write_text("max 100000\n")
    (root / "sys/fs/cgroup/user.slice/job/memory.max").write_text("max\n")
    assert cgroup_limits(root) == {"cgroup_cpus": None, "cgroup_memory_mib": None}


def test_a_system_that_tells_nothing_is_described_all_the_same(tmp_path):
    row = host_columns(tmp_path)
    assert row["cpu_model"]
    assert row["cpus"] >= 1
    assert row["governor"] is None
