"""Shrinkage: few rows change a device's level a little, many rows fully; other devices never."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars

CATALOG = DeviceCatalog.load()
A10, T4 = CATALOG.get("a10"), CATALOG.get("t4")


def fitted(n, residual, stratum="linear"):
    return ShrunkScalars().updated(np.full(n, residual), [A10] * n, [stratum] * n)


@given(st.integers(1, 200), st.floats(-2, 2))
def test_a_correction_never_overshoots_what_was_measured(n, residual):
    (found,) = fitted(n, residual).correction([A10], ["linear"])
    assert abs(found) <= abs(residual) + 1e-12
    assert found * residual >= 0


def test_more_rows_shrink_less():
    sizes = [fitted(n, 1.0).correction([A10], ["linear"])[0] for n in (1, 5, 50, 1000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 0.99


def test_a_class_without_rows_takes_the_devices_level():
    scalars = fitted(50, 0.5)
    assert 0.45 < scalars.correction([A10], ["softmax"])[0] < 0.5


def test_other_devices_stay_as_they_were():
    assert fitted(50, 0.5).correction([T4], ["linear"])[0] == 0.0


def test_new_rows_of_a_device_replace_its_old_ones():
    scalars = fitted(50, 0.5).updated(np.full(50, -0.5), [A10] * 50, ["linear"] * 50)
    assert scalars.correction([A10], ["linear"])[0] < -0.4
    assert scalars.rows(A10) == 50


def test_one_row_of_a_class_is_believed_less_than_the_level_of_the_device():
    """With three pseudo-observations at the device's level, one row gets a weight of a quarter."""
    residuals = np.array([0.0] * 30 + [1.0])
    strata = ["linear"] * 30 + ["softmax"]
    scalars = ShrunkScalars().updated(residuals, [A10] * 31, strata)
    (found,) = scalars.correction([A10], ["softmax"])
    assert 0.15 < found < 0.35
