"""Sheets of devices that the catalogue lacks: from a file, by name, or of this processor."""

import pytest

from forerun.service.stores.device_sheets import (
    BadSheet,
    black_box_sheet,
    detected_cpu,
    last_cache_mib,
    read_sheet,
)

CPU = """processor\t: 0
vendor_id\t: {vendor}
model name\t: Some CPU
cpu MHz\t\t: 2500.000
flags\t\t: fpu avx avx2 {flags}
"""


@pytest.fixture
def root(tmp_path):
    def made(vendor="AuthenticAMD", flags="avx512f avx512_vnni"):
        files = {
            "proc/cpuinfo": CPU.format(vendor=vendor, flags=flags),
            "proc/meminfo": "MemTotal:       16777216 kB\n",
            "sys/devices/system/cpu/cpu0/cache/index2/size": "1024K\n",
            "sys/devices/system/cpu/cpu0/cache/index3/size": "32M\n",
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return made


def test_a_processor_is_detected_from_what_the_system_tells(root):
    device = detected_cpu("My CPU", root(), lambda: 20.0)
    cores = device.compute_units
    assert device.name == "my-cpu"
    assert device.peak("fp32") == pytest.approx(cores * 2500 * 32 / 1e6, rel=0.01)
    assert (device.memory_bandwidth_gbs, device.l2_mib, device.memory_gib) == (20, 32, 16)
    assert set(device.sources) == set(device.figures())


@pytest.mark.parametrize(
    ("vendor", "flags", "cycle"),
    [("GenuineIntel", "avx512f", 64), ("GenuineIntel", "", 32), ("AuthenticAMD", "", 32)],
)
def test_peaks_follow_vectors_and_vendor(root, vendor, flags, cycle):
    device = detected_cpu("x", root(vendor, flags), lambda: 20.0)
    expected = device.compute_units * 2500 * cycle / 1e6
    assert device.peak("fp32") == pytest.approx(expected, rel=0.01)


def test_where_nothing_is_detected_a_black_box_is_proposed(tmp_path):
    with pytest.raises(BadSheet, match="--black-box"):
        detected_cpu("x", tmp_path)
    assert last_cache_mib(tmp_path) is None
    assert not black_box_sheet("x", "cpu").has_sheet
    with pytest.raises(BadSheet, match="none of gpu"):
        black_box_sheet("x", "toaster")


def test_sheets_are_read_from_files_and_wrong_ones_name_the_figure(tmp_path):
    file = tmp_path / "sheet.yaml"
    file.write_text("vendor: acme\nkind: cpu\nmemory_bandwidth_gbs: 80\npeak_tflops: {fp32: 2}\n")
    assert read_sheet(file, "box").peak("fp32") == 2
    for text, says in (
        ("vendor: acme\nkind: cpu\ntdp_w: -3\n", "tdp_w"),
        ("vendor: acme\n", "kind"),
        ("[1, 2]", "figures by name"),
        ("a: [", "not a valid sheet"),
    ):
        file.write_text(text)
        with pytest.raises(BadSheet, match=says):
            read_sheet(file, "box")
    with pytest.raises(BadSheet, match="No sheet"):
        read_sheet(tmp_path / "none.json")
