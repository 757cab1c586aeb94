"""Figures of a sheet have units and sources; what is not given is said, not drawn."""

import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.service.http.pages.devices import (
    UNITS,
    figures,
    half_rate,
    roofline,
    similar,
    unknown,
)

CATALOG = DeviceCatalog.load()
A100 = CATALOG.get("a100-pcie-80gb")
BLACK_BOX = Device(name="mine", vendor="me", kind="cpu")


def test_every_figure_of_every_sheet_has_words_a_unit_and_a_source():
    for device in CATALOG:
        found = figures(device)
        assert len(found) == len(device.figures())
        assert all(figure.source and figure.value for figure in found)


def test_peaks_are_named_by_precision_and_integers_are_no_floating_point_operations():
    found = {figure.name: figure for figure in figures(A100)}
    assert found["Peak in fp16"].unit == "TFLOP/s"
    assert found["Peak in int8"].unit == "TOP/s"
    assert found["Year of release"].value == "2021"
    assert found["Memory"].value == "80"


def test_what_a_sheet_does_not_give_is_listed():
    assert "idle power" in unknown(A100)
    assert "memory" not in unknown(A100)
    assert len(unknown(BLACK_BOX)) == len(UNITS) - 1


def test_a_roofline_bends_where_bandwidth_meets_the_peak():
    rows = [row for row in roofline(A100).rows if "fp16" in row["precision"]]
    low, ridge, high = rows
    slope = A100.bandwidth_gbs / 1e3
    assert low["rate"] == pytest.approx(low["intensity"] * slope)
    assert ridge["rate"] == pytest.approx(ridge["intensity"] * slope)
    assert ridge["rate"] == high["rate"] == A100.peak("fp16")


def test_equal_peaks_share_a_line():
    names = {row["precision"] for row in roofline(A100).rows}
    assert "fp16, bf16" in names
    assert sum(name.count("fp16") for name in names) == 1


def test_a_device_without_a_sheet_has_no_roofline():
    assert roofline(BLACK_BOX) is None
    assert similar(BLACK_BOX, CATALOG) == []


def test_similar_devices_are_of_the_same_kind_and_never_the_device_itself():
    found = similar(A100, CATALOG)
    assert len(found) == 4
    assert A100 not in found
    assert {device.kind for device in found} == {"gpu"}
    assert any(device.name.startswith("a100") for device in found)


def test_the_half_rate_is_the_higher_one_and_none_where_neither_is_given():
    assert half_rate(A100) == A100.peak("fp16")
    assert half_rate(CATALOG.get("mi100")) == CATALOG.get("mi100").peak("fp16")
    assert half_rate(BLACK_BOX) is None
