"""Whether it fits: by the safe end of the range, with the risk, and null where it is not known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import Device, DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.prediction import Estimate
from forerun.service.schemas.answers import ENGINEERING, fits
from tests.service.conftest import GRAPH

L4 = DeviceCatalog.load().get("l4")
NETWORK = Network(GRAPH)
ON_L4 = Query(NETWORK, L4)
SIZES = st.floats(1.0, 1e6)


@given(value=SIZES, more=SIZES)
def test_what_fits_by_its_high_fits_by_its_value_and_has_headroom(value, more):
    found = fits(ON_L4, Estimate(value, value, value + more, 0.9))
    assert found.fits == (found.headroom_mib >= 0) == (value + more <= found.usable_mib)
    assert found.fits_at_value or not found.fits


@pytest.mark.parametrize(
    ("name", "reported_mib"), [("t4", 15_109), ("l4", 23_034), ("h100-pcie-80gb", 81_559)]
)
def test_usable_memory_is_no_more_than_devices_report(name, reported_mib):
    device = DeviceCatalog.load().get(name)
    usable = fits(Query(NETWORK, device), Estimate(1.0)).usable_mib
    assert 0.9 * reported_mib < usable <= reported_mib


def test_the_risk_is_named_only_where_it_was_measured():
    calibrated = Estimate(100.0, 90.0, 120.0, 0.9)
    risk = "of runs like those measured, about 5 % take more than `high`"
    assert fits(ON_L4, calibrated).risk == risk
    assert "about 0.5 %" in fits(replace(ON_L4, level=99.0), calibrated).risk
    assert fits(ON_L4, Estimate(100.0, 90.0, 120.0)).risk == ENGINEERING


def test_what_is_not_known_is_null():
    bare = Device(name="box", vendor="me", kind="gpu")
    assert fits(ON_L4, None) is None
    assert fits(Query(NETWORK, bare), Estimate(1.0)) is None
