"""Slices of a GPU (MIG): their figures, and their names."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.device_slices import slice_of
from forerun.data.errors import UnknownDevice

CATALOG = DeviceCatalog.load()


def test_seven_small_slices_take_no_more_than_the_whole():
    whole = CATALOG.get("h100-sxm-80gb")
    own = slice_of(whole, "1g.10gb")
    for figure in ("memory_gib", "memory_bandwidth_gbs", "compute_units"):
        assert 0.8 * getattr(whole, figure) <= 7 * getattr(own, figure) <= getattr(whole, figure)


@pytest.mark.parametrize("profile", ["", "8g.80gb", "1g", "all", "1g.80gb0", "7g.160gb", "1g.1gb"])
def test_an_unknown_profile_is_no_device(profile):
    assert slice_of(CATALOG.get("h100-sxm-80gb"), profile) is None


@pytest.mark.parametrize("name", ["A100-SXM4-80GB MIG 1g.10gb", "a100-sxm-80gb-mig-1g-10gb"])
def test_every_door_knows_a_slice_by_the_name_of_its_gpu_and_its_profile(name):
    assert CATALOG.get(name) == slice_of(CATALOG.get("a100-sxm-80gb"), "1g.10gb")


def test_the_name_of_a_slice_leads_to_the_slice_again():
    own = slice_of(CATALOG.get("h100-sxm-80gb"), "3g.40gb")
    assert CATALOG.get(own.name) == own


@pytest.mark.parametrize(
    "name",
    [
        *("a100-sxm-80gb-mig-9g-90gb", "no-gpu-mig-1g-10gb", "mi300x-mig-1g-24gb"),
        *("l4-mig-1g-5gb", "rtx-4090-mig-1g-5gb", "rtx-a3000-mig-1g-6gb"),
    ],
)
def test_a_slice_that_does_not_exist_is_an_unknown_device(name):
    with pytest.raises(UnknownDevice):
        CATALOG.get(name)


@pytest.mark.parametrize(
    ("name", "memory_gib"), [("a30-mig-1g-6gb", 6.0), ("a100-sxm-40gb-mig-1g-5gb", 5.0)]
)
def test_profiles_of_other_gpus_have_the_memory_that_they_state(name, memory_gib):
    assert CATALOG.get(name).memory_gib == memory_gib
