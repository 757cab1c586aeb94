"""Registered devices and sheets: seen by every process, from files, names and this processor."""

from threading import Thread

import pytest

from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownDevice
from forerun.service.stores import devices as device_store
from forerun.service.stores.device_sheets import (
    BadSheet,
    black_box_sheet,
    detected_cpu,
    last_cache_mib,
    read_sheet,
)
from forerun.service.stores.devices import DeviceStore, TakenName
from forerun.service.stores.places import StoreFull


def card(name="my-card", **figures) -> Device:
    figures = {"memory_bandwidth_gbs": 900, "peak_tflops": {"fp32": 40}} | figures
    return Device(name=name, vendor="me", kind="gpu", **figures)


def test_two_stores_over_one_folder_agree_at_once(tmp_path):
    one, other = DeviceStore(tmp_path / "devices"), DeviceStore(tmp_path / "devices")
    for bandwidth in (100.0, 200.0, 300.0):
        one.register(card(memory_bandwidth_gbs=bandwidth))
        assert other.get("my-card").memory_bandwidth_gbs == bandwidth
        assert one.get("my-card").memory_bandwidth_gbs == bandwidth
    other.register(card("another"))
    assert {"my-card", "another"} <= set(one.catalog.names())


def test_what_is_held_is_never_older_than_the_last_registration(tmp_path):
    store = DeviceStore(tmp_path)
    assert store.held("l4") is None
    assert store.get("l4") is not None
    for tdp in (100.0, 200.0):
        store.register(card(tdp_w=tdp))
        assert store.held("my-card") in (None, card(tdp_w=tdp))
        assert store.get("my-card").tdp_w == tdp


def test_registrations_at_once_are_all_kept(tmp_path):
    store = DeviceStore(tmp_path)
    names = [f"card-{number}" for number in range(12)]
    threads = [Thread(target=lambda n=name: store.register(card(n))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(names) <= set(store.catalog.names())
    assert set(names) <= set(DeviceStore(tmp_path).catalog.names())


def test_a_name_that_another_process_took_is_refused(tmp_path):
    one, other = DeviceStore(tmp_path), DeviceStore(tmp_path)
    one.register(card(aliases=["shared"]))
    with pytest.raises(InputError, match="shared"):
        other.register(card("another", aliases=["shared"]))
    assert DeviceStore(tmp_path).get("shared").name == "my-card"


def test_the_catalogue_and_its_aliases_are_protected(tmp_path):
    store = DeviceStore(tmp_path)
    with pytest.raises(TakenName):
        store.register(card("l4"))
    with pytest.raises(InputError, match="a100"):
        store.register(card("a100"))
    assert not list(tmp_path.iterdir())


def test_there_is_a_most(tmp_path, monkeypatch):
    monkeypatch.setattr(device_store, "MOST_DEVICES", 1)
    store = DeviceStore(tmp_path)
    store.register(card())
    with pytest.raises(StoreFull):
        store.register(card("another"))
    store.register(card(tdp_w=10))


def test_a_bad_file_is_left_out_and_logged(tmp_path, capsys):
    DeviceStore(tmp_path).register(card())
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "thief.json").write_text(card("thief", aliases=["l4"]).model_dump_json())
    store = DeviceStore(tmp_path)
    assert store.get("my-card").origin == "registered"
    assert store.get("l4").origin == "catalog"
    with pytest.raises(UnknownDevice):
        store.get("thief")
    logged = capsys.readouterr()
    assert "broken.json" in logged.err
    assert "thief" in logged.err
    assert logged.out == ""


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
