"""List prices of an hour on a device."""

import json
from importlib.resources import files

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.list_prices import list_price


def _instances() -> list[dict[str, object]]:
    text = (files("forerun.data") / "list_prices.json").read_text(encoding="utf-8")
    return list(json.loads(text)["instances"])


def test_an_instance_s_price_is_divided_by_its_devices() -> None:
    price = list_price("h100-sxm-80gb")
    assert price is not None
    assert price.usd_per_device_hour == pytest.approx(55.04 / 8)
    assert price.source == "list price, Amazon EC2 on demand, us-east-1, 2025-06: p5.48xlarge"


def test_every_price_is_of_a_device_in_the_catalog_once() -> None:
    names = [str(row["device"]) for row in _instances()]
    assert len(set(names)) == len(names)
    assert set(names) <= set(DeviceCatalog.load().names())


def test_a_device_without_a_list_price_has_none() -> None:
    assert list_price("rtx-4090") is None
