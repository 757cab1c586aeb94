"""Control groups are found under version 1, version 2 and both, and mean the same under each."""

import pytest

from forerun.data.collectors.system import procfs as cgroup
from forerun.data.collectors.system.host_inventory import all_sources, read_all
from tests.data.collectors.recorded import HYBRID, PROC, V1, V2, tree


def group(root):
    """What the groups of a tree say."""
    found = read_all(all_sources(root), root)
    both = found.cumulative | found.gauges
    return {name: value for name, value in both.items() if name.startswith("cgroup.")}


@pytest.mark.parametrize(("files", "version"), [(V1, "v1"), (V2, "v2"), (HYBRID, "hybrid")])
def test_the_version_follows_from_mounts_and_membership(files, version):
    found = cgroup.layout(files["proc/self/mounts"], files["proc/self/cgroup"])
    assert found.version == version


def test_without_groups_there_is_nothing_to_read():
    assert cgroup.layout("tmpfs /tmp tmpfs rw 0 0\n", "").version == "none"
    assert cgroup.sources(cgroup.layout("", "")) == ()


def test_one_of_named_hierarchies_alone_is_none():
    mounts = "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
    assert cgroup.layout(mounts, "1:name=systemd:/\n").version == "none"


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
    assert cgroup.memory_limit("1048576\n").gauges == {"cgroup.memory.limit_mib": 1.0}


def test_a_tree_without_mounts_has_the_sources_of_proc_alone(tmp_path):
    assert group(tree(tmp_path, PROC)) == {}
