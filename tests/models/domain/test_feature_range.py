"""Features outside the training range are named; devices are known by sheet, not by name."""

import numpy as np
import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.models.domain.feature_range import (
    FeatureRange,
    KnownDevices,
    same_sheet,
    sheet,
)

RANGE = FeatureRange.of(("intensity", "batch"), np.array([[0.0, 1.0], [2.0, 11.0]]))


def test_a_row_inside_has_no_limits():
    assert RANGE.outside(np.array([1.0, 5.0])) == ()


def test_each_feature_that_leaves_the_range_is_named_with_both_ends():
    (limit,) = RANGE.outside(np.array([1.0, 40.0]), "latency_ms")
    assert str(limit) == "batch is 40; the training set has 1 to 11"
    assert (limit.feature, limit.value, limit.low, limit.high) == ("batch", 40.0, 1.0, 11.0)
    assert (limit.metric, limit.severity) == ("latency_ms", "outside")


def test_clipping_moves_only_what_is_outside():
    clipped = RANGE.clip(np.array([[-5.0, 5.0], [1.0, 99.0]]))
    np.testing.assert_array_equal(clipped, [[0.0, 5.0], [1.0, 11.0]])


def test_a_renamed_device_is_still_known():
    catalog = DeviceCatalog.load()
    known = KnownDevices.of([catalog.get("rtx-3090")])
    assert catalog.get("rtx-3090").model_copy(update={"name": "mine"}) in known
    assert catalog.get("rtx-4090") not in known
    assert "rtx-3090" not in known


@pytest.mark.parametrize(
    ("batch", "inside"), [(11.9, True), (12.1, False), (0.1, True), (-0.1, False)]
)
def test_a_tenth_of_the_range_beyond_it_is_inside(batch, inside):
    assert (RANGE.outside(np.array([1.0, batch])) == ()) == inside
    assert RANGE.outside(np.array([1.0, 11.1]), tolerance=0.0) != ()


def test_features_that_are_not_given_are_left_out_of_a_range():
    with_hole = FeatureRange.of(("a",), np.array([[np.nan], [2.0], [3.0]]))
    assert (with_hole.low[0], with_hole.high[0]) == (2.0, 3.0)


def test_a_sheet_by_hand():
    device = Device(
        name="x", vendor="v", kind="gpu", memory_bandwidth_gbs=900.0, compute_units=80,
        peak_tflops={"fp32": 14.0, "bf16": 112.0}, tdp_w=250.0,
    )  # fmt: skip
    assert np.exp(sheet(device)) == pytest.approx([900.0, 14.0, 112.0, 80.0, 250.0], rel=1e-5)
    half = device.model_copy(update={"peak_tflops": {"fp16": 56.0, "bf16": 28.0}})
    assert np.exp(sheet(half)[1:3]) == pytest.approx([56.0, 56.0], rel=1e-5)
    bare = device.model_copy(
        update={"peak_tflops": {"fp32": 14.0}, "compute_units": None, "tdp_w": None}
    )
    assert sheet(bare)[2:] == (0.0, 0.0, 0.0), "0 for what is not known"


@pytest.mark.parametrize(("more", "same"), [(1.019, True), (1.021, False), (0.981, True)])
def test_sheets_of_one_device_differ_by_two_percent_at_most(more, same):
    one = (6.8, 2.6, 0.0)
    other = (6.8, 2.6 + float(np.log(more)), 4.0)
    assert same_sheet(one, other) == same
    assert same_sheet(other, one) == same


def test_a_device_without_a_sheet_is_never_known():
    bare = Device(name="bare", vendor="nobody", kind="gpu")
    assert KnownDevices.of([bare]).sheets == ()
    assert bare not in KnownDevices.of([DeviceCatalog.load().get("t4")])


def test_limits_of_many_rows_are_those_of_each():
    rows = np.array([[1.0, 40.0], [1.0, 5.0], [-9.0, 99.0]])
    assert RANGE.outside_each(rows, "latency_ms") == [RANGE.outside(r, "latency_ms") for r in rows]
