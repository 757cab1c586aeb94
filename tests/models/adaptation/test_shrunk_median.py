"""Corrections from few rows are shrunk towards none."""

import numpy as np
import pytest

from forerun.models.adaptation.shrunk_scalar import shrunk_medians


def test_a_correction_is_the_median_times_the_share_of_measured_rows():
    residuals = np.array([0.4, 0.2, 5.0, np.nan, -0.8, np.nan])
    strata = np.array(["a", "a", "a", "a", "b", "c"])
    found = shrunk_medians(residuals, strata, prior_rows=3.0)
    assert found == {"a": pytest.approx(0.4 * 3 / 6), "b": pytest.approx(-0.8 / 4)}
