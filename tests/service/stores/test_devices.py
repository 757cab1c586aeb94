"""Registered devices: seen by every process, none lost, one bad file keeps none from answering."""

from threading import Thread

import pytest

from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownDevice
from forerun.service.stores import devices as device_store
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
