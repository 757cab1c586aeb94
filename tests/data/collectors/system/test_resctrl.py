"""Last-level cache and memory bandwidth as resctrl writes them."""

import pytest

from forerun.data.collectors.system.host_inventory import all_sources, read_all
from forerun.data.collectors.system.procfs import Resctrl
from tests.data.collectors.recorded import tree

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
