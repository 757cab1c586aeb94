"""Whether it fits: by the safe end of the range, with the risk, and null where it is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import Device, DeviceCatalog
from forerun.models.prediction import Estimate
from forerun.service.schemas.answers import CALIBRATED, ENGINEERING, fits

L4 = DeviceCatalog.load().get("l4")
SIZES = st.floats(1.0, 1e6)


@given(value=SIZES, more=SIZES)
def test_what_fits_by_its_high_fits_by_its_value_and_has_headroom(value, more):
    found = fits(L4, Estimate(value, value, value + more, 0.9), calibrated=True)
    assert found.fits == (found.headroom_mib >= 0) == (value + more <= found.usable_mib)
    assert found.fits_at_value or not found.fits


@pytest.mark.parametrize(
    ("name", "reported_mib"), [("t4", 15_109), ("l4", 23_034), ("h100-pcie-80gb", 81_559)]
)
def test_usable_memory_is_no_more_than_devices_report(name, reported_mib):
    device = DeviceCatalog.load().get(name)
    usable = fits(device, Estimate(1.0), calibrated=False).usable_mib
    assert 0.9 * reported_mib < usable <= reported_mib


def test_the_risk_is_named_only_where_it_was_measured():
    peak = Estimate(100.0, 90.0, 120.0)
    assert fits(L4, peak, calibrated=True).risk == CALIBRATED
    assert fits(L4, peak, calibrated=False).risk == ENGINEERING


def test_what_is_not_known_is_null():
    bare = Device(name="box", vendor="me", kind="gpu")
    assert fits(L4, None, calibrated=False) is None
    assert fits(bare, Estimate(1.0), calibrated=False) is None
