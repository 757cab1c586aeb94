"""Matrix products as features: bounds, caches, and no names of devices."""

import numpy as np
import pytest

from forerun.features.llm_kernels.families import (
    ELEMENTWISE_FEATURES,
    GEMM_FEATURES,
    elementwise_table,
    gemm_table,
)
from forerun.features.llm_kernels.table import Chip
from tests.devices import H100, L40S

SIZES = np.array([[1.0, 17.0, 4096.0], [4096.0, 8192.0, 8192.0], [4096.0, 1000.0, 8192.0]])


def test_the_bound_is_the_longer_of_arithmetic_and_traffic() -> None:
    """One token is bound by the weights' bytes, thousands by arithmetic, at the sheet's rates."""
    table = gemm_table(*SIZES, "bf16", H100)
    moved = 2.0 * (4096 * 4096 + 4096 + 4096)
    assert table.bound_s[0] == pytest.approx(moved / 3.35e12)
    assert table.bound_s[2] == pytest.approx(2 * 4096 * 8192 * 8192 / 989.4e12)
    assert table.features.shape == (3, len(GEMM_FEATURES))


def test_fewer_bits_move_fewer_bytes_and_multiply_faster() -> None:
    """fp8 halves the weights and doubles the peak; the result stays in 16 bits."""
    wide, narrow = (gemm_table(*SIZES, form, H100).bound_s for form in ("bf16", "fp8"))
    assert wide[2] / narrow[2] == pytest.approx(1979 / 989.4)
    assert 1.9 < wide[0] / narrow[0] < 2.0


def test_operands_come_from_the_cache_where_all_copies_fit() -> None:
    """96 MiB of cache hold six copies of 8 MiB, not of 32 MiB; the memory term says which."""
    sides = np.array([2048.0, 4096.0])
    table = gemm_table(np.ones(2), sides, sides, "bf16", L40S)
    chip = Chip.of(L40S)
    bytes_moved = 2.0 * (sides * sides + 2.0 * sides)
    assert table.parallel_s[0, 1] == pytest.approx(bytes_moved[0] / chip.l2_bandwidth)
    assert table.parallel_s[1, 1] == pytest.approx(bytes_moved[1] / chip.bandwidth)


def test_waves_count_tiles_over_compute_units() -> None:
    """132 tiles of 128 x 128 fill the 132 units of an H100; one more needs a second wave."""
    column = GEMM_FEATURES.index("last_wave_128x128")
    rows = np.array([128.0, 128.0])
    table = gemm_table(rows, np.array([132.0, 133.0]) * 128.0, rows, "bf16", H100)
    assert table.features[0, column] == pytest.approx(1.0)
    assert table.features[1, column] == pytest.approx(133 / 132 / 2)


def test_alignment_is_the_largest_power_of_two_up_to_256() -> None:
    """17 is odd, 1,000 is a multiple of 8, 4,096 of 256 and more."""
    table = gemm_table(*SIZES, "bf16", H100)
    assert table.features[1, GEMM_FEATURES.index("m_alignment")] == 0.0
    assert table.features[1, GEMM_FEATURES.index("k_alignment")] == 3.0
    assert table.features[2, GEMM_FEATURES.index("n_alignment")] == 8.0


def test_an_activation_moves_three_values_for_one_result() -> None:
    """It reads gate and value and writes one; its bound is that traffic over the bandwidth."""
    tokens, width = np.array([1024.0]), np.array([8192.0])
    table = elementwise_table(tokens, width, "activation", H100)
    assert table.bound_s[0] == pytest.approx(3 * 1024 * 8192 * 2 / 3.35e12)
    assert table.features.shape == (1, len(ELEMENTWISE_FEATURES))


def test_figures_that_a_sheet_lacks_are_assumed() -> None:
    """Without clock, units and cache there are still features, all finite."""
    bare = H100.model_copy(update={"boost_clock_mhz": None, "compute_units": None, "l2_mib": None})
    bare = bare.model_copy(update={"name": "bare", "sources": {}})
    assert np.isfinite(gemm_table(*SIZES, "bf16", bare).features).all()
    assert 100 < Chip.of(bare).units < 160
