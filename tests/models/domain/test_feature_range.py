"""Features outside the training range are named; devices are known by sheet, not by name."""

import numpy as np

from forerun.data.device import DeviceCatalog
from forerun.models.domain.feature_range import FeatureRange, KnownDevices

RANGE = FeatureRange.of(("intensity", "batch"), np.array([[0.0, 1.0], [2.0, 11.0]]))


def test_a_row_inside_has_no_limits():
    assert RANGE.outside(np.array([1.0, 5.0])) == ()


def test_each_feature_that_leaves_the_range_is_named_with_both_ends():
    (limit,) = RANGE.outside(np.array([1.0, 40.0]), "latency_ms")
    assert str(limit) == "batch is 40, training saw 1 to 11"
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
