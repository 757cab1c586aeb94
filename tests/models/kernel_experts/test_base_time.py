"""The closed form of a family: it finds its factors, and shares add up."""

import numpy as np
import pytest

from forerun.features.llm_kernels.families import kernel_groups
from forerun.models.kernel_experts.family import BaseTime
from tests.models.kernel_experts.rows import kernels

TABLE = next(
    group.table for group in kernel_groups(kernels("h100-sxm-80gb", 300)) if "gemm" in group.family
)
KNOWN = BaseTime(4e-6, np.array([0.8, 0.5]), np.array([1.4, 1.1]), 1.5)


def test_a_fit_finds_the_factors_that_made_the_times() -> None:
    """Without noise, the fitted form gives the same times."""
    log_seconds = np.log(KNOWN.seconds(TABLE))
    found = BaseTime.fit(TABLE, log_seconds, np.ones(len(TABLE)))
    np.testing.assert_allclose(np.log(found.seconds(TABLE)), log_seconds, atol=0.01)
    assert found.launch_s == pytest.approx(4e-6, rel=0.05)


def test_shares_say_how_a_factor_moves_the_time() -> None:
    """Each row of shares sums to 1; one per cent more of a factor is its share of one per cent."""
    shares = KNOWN.shares(TABLE)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    more = BaseTime(4e-6, np.array([0.8, 0.5]), np.array([1.4 * 1.001, 1.1]), 1.5)
    moved = np.log(more.seconds(TABLE) / KNOWN.seconds(TABLE)) / np.log(1.001)
    np.testing.assert_allclose(moved, shares[:, 3], atol=2e-3)


def test_a_sharp_form_is_the_longest_term() -> None:
    """With a large exponent the terms that overlap take as long as the longest."""
    sharp = BaseTime(0.0, np.zeros(2), np.ones(2), 1000.0)
    np.testing.assert_allclose(sharp.seconds(TABLE), TABLE.parallel_s.max(axis=1), rtol=1e-3)
