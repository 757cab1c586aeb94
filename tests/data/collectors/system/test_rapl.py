"""Energy counters of processors, from recorded trees: what counts, wraparound, and refusals."""

import os

import pytest

from forerun.data.collectors.system.host import Rapl

RANGE_UJ = 262_143_328_850
"""As Intel's packages of one socket report it."""


@pytest.fixture
def powercap(tmp_path):
    """Two packages with cores and memory, as Linux lays them out, and the MMIO copy of one."""

    def write(folder, name, counter):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "name").write_text(f"{name}\n")
        (tmp_path / folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (tmp_path / folder / "energy_uj").write_text(f"{counter}\n")

    (tmp_path / "intel-rapl").mkdir()
    write("intel-rapl:0", "package-0", 1_000_000)
    write("intel-rapl:0:0", "core", 600_000)
    write("intel-rapl:0:1", "dram", 200_000)
    write("intel-rapl:1", "package-1", RANGE_UJ - 500_000)
    write("intel-rapl:1:0", "dram", 300_000)
    write("intel-rapl-mmio:0", "package-0", 1_000_000)
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
