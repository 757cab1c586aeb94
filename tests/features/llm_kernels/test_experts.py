"""Routed experts as features: which are covered, skewed loads, and division over devices."""

import numpy as np
import pytest

from forerun.features.llm_kernels.families import EXPERTS_FEATURES, ExpertSizes, experts_table
from forerun.features.llm_kernels.table import KernelTable
from tests.devices import H100


def table(tokens: float, skew: float = 0.0, tensor: float = 1, expert: float = 1) -> KernelTable:
    """128 experts of width 768, 8 for each token."""
    values = (2048.0, 768.0, 128.0, 8.0, tensor, expert, skew)
    sizes = ExpertSizes(*(np.array([float(value)]) for value in values))
    return experts_table(np.array([float(tokens)]), sizes, "bf16", H100)


def feature(of: KernelTable, name: str) -> float:
    return float(of.features[0, EXPERTS_FEATURES.index(name)])


def test_one_token_reads_only_its_experts():
    """Eight of 128 experts are covered; their weights and the token's activations are moved."""
    one = table(1)
    weights, activations = 8 * 3 * 2048 * 768 * 2, 8 * (2 * 2048 + 2 * 768) * 2
    assert feature(one, "covered_share") == pytest.approx(8 / 128)
    assert one.bound_s[0] == pytest.approx((weights + activations) / 3.35e12)


def test_many_tokens_are_bound_by_arithmetic():
    flops = 2 * 3 * 65536 * 8 * 2048 * 768
    assert table(65536).bound_s[0] == pytest.approx(flops / 989.4e12)


def test_skewed_loads_cover_fewer_experts_and_fill_tiles_worse():
    even, skewed = table(64), table(64, skew=1.2)
    assert feature(skewed, "covered_share") < feature(even, "covered_share") == 1.0
    even, skewed = table(4096), table(4096, skew=1.2)
    assert skewed.parallel_s[0, 0] > even.parallel_s[0, 0]


def test_devices_that_share_experts_share_the_work():
    """Both ways of dividing over four devices leave each a quarter of the arithmetic."""
    whole = table(65536).parallel_s[0, 0]
    assert table(65536, tensor=4).parallel_s[0, 0] == pytest.approx(whole / 4)
    assert table(65536, expert=4).parallel_s[0, 0] == pytest.approx(whole / 4)


@pytest.mark.parametrize("skew", [0.0, 1.0 + 1e-3, 1.01, 1.2, 2.0])
@pytest.mark.parametrize("tokens", [1, 7, 4096])
def test_every_feature_is_finite(tokens, skew):
    assert np.isfinite(table(tokens, skew, 2, 128).features).all()
    assert table(tokens, skew).parallel_s.min() > 0.0
