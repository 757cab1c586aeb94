"""Batch sizes at which a predictor is evaluated, and interpolation to other batch sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import KERNEL_CODE
from forerun.features.lowering.kernels import Launch, launch
from forerun.features.networks.features import Chip, kind_seconds
from forerun.features.networks.kernel_floor import SMALL_KERNEL_S, small_batch_seconds
from forerun.models.networks import batch_interpolation
from forerun.models.networks.additive_model import (
    COLUMNS,
    PARENTS,
    AdditiveLatencyModel,
    design_row,
)
from forerun.models.networks.batch_interpolation import (
    FILLED_S,
    POWERS,
    batch_ladder,
    filling_batch,
    law_seconds,
)

CHIP = Chip(100e12, 200e12, 25e12, 1e12, 100.0, 2**24, is_cpu=False)
LINEAR = next(name for name in KERNEL_CODE if name.startswith("linear/"))
CONV = next(name for name in KERNEL_CODE if name.startswith("conv/"))
SPREAD = np.random.default_rng(5).normal(-0.5, 0.6, len(COLUMNS))
TIMES = AdditiveLatencyModel({mode: SPREAD + 0.1 * i for i, mode in enumerate(PARENTS)})
"""Coefficients that all differ, so that mixing up any two changes the result."""


def net(scale: float = 1.0, repeat: float = 1.0) -> Kernels:
    size = 2.0 * 3136 * 64 * 576 * scale
    rows = (
        Launch(KERNEL_CODE[CONV], work=size, traffic=8e5 * scale, fixed_traffic=7e4,
               m=3136.0, n=64.0, k=576.0, tensor=True, repeat=repeat),
        launch("elementwise", 8e5 * scale, repeat=repeat),
        Launch(KERNEL_CODE[LINEAR], work=2e6 * scale, traffic=5e3, fixed_traffic=4e6,
               m=1.0, n=1000.0, k=2048.0, tensor=True),
        launch("constant", 0.0, 1e6),
    )  # fmt: skip
    return Kernels.of(rows, 1.0, 0.0, 0)


def seconds(kernels: Kernels, batch: float, mode: str) -> float:
    return float(law_seconds(TIMES, kernels, [CHIP], np.array([float(batch)]), mode)[0, 0])


def law_of_powers(kernels: Kernels, mode: str) -> dict[int, float]:
    return {batch: seconds(kernels, batch, mode) for batch in POWERS}


@given(batch=st.integers(1, 4096), filled=st.sampled_from([2**i for i in range(13)]))
def test_the_ladder_encloses_a_batch_that_fills_the_device(batch: int, filled: int) -> None:
    ladder = batch_ladder(batch, filled)
    assert all(size & (size - 1) == 0 for size in ladder)
    assert sum(ladder.values()) == pytest.approx(1.0)
    if batch <= filled:
        assert ladder == {filled: 1.0}
    elif batch & (batch - 1) == 0:
        assert ladder == {batch: 1.0}
    else:
        (lower, _), (upper, weight) = ladder.items()
        assert lower < batch < upper == 2 * lower
        assert lower ** (1 - weight) * upper**weight == pytest.approx(batch)


@given(scale=st.floats(1e-5, 1e4), mode=st.sampled_from(list(PARENTS)))
def test_the_filling_batch_is_the_smallest_that_takes_long_enough(scale: float, mode: str) -> None:
    kernels = net(scale)
    filled = filling_batch(law_of_powers(kernels, mode))
    assert filled & (filled - 1) == 0
    assert seconds(kernels, filled, mode) >= FILLED_S or filled == 2**20
    if filled > 1:
        assert seconds(kernels, filled // 2, mode) < FILLED_S


def test_what_never_fills_the_device_stops_at_a_largest_batch() -> None:
    constant = Kernels.of((launch("constant", 0.0, 1e3),), 1.0, 0.0, 0)
    assert filling_batch(law_of_powers(constant, "eager")) == 2**20


@given(batch=st.floats(1, 4096), more=st.floats(1, 8), mode=st.sampled_from(list(PARENTS)))
def test_the_law_never_falls_with_the_batch_and_grows_no_faster(
    batch: float, more: float, mode: str
) -> None:
    one, other = (seconds(net(), b, mode) for b in (batch, batch * more))
    assert one <= other * (1 + 1e-12)
    assert other <= one * more * (1 + 1e-9)


def test_no_kernel_is_below_its_floor_and_repeats_count() -> None:
    kernels = net(1e-6, repeat=3.0)
    [found] = TIMES.kernel_seconds(kernels, CHIP, np.ones(1), "eager")
    assert (found >= SMALL_KERNEL_S * kernels.repeat).all()
    np.testing.assert_allclose(found[:2], (small_batch_seconds(kernels, CHIP) * 3.0)[:2])


@pytest.mark.parametrize("mode", list(PARENTS))
def test_at_large_batches_the_law_is_the_sum_that_the_coefficients_are_fitted_to(mode: str) -> None:
    """The sums over kernels and over kinds are equal, except for launches that a queue hides."""
    kernels, batch = net(), 4096.0
    [found] = TIMES.kernel_seconds(kernels, CHIP, np.array([batch]), mode)
    assert (found[:3] > small_batch_seconds(kernels, CHIP)[:3]).all()
    design = design_row(kind_seconds(kernels, CHIP, batch), CHIP)
    terms = TIMES.terms(design[None], [mode])[0]
    extra = SMALL_KERNEL_S - found[3] if found[3] > SMALL_KERNEL_S else 0.0
    assert found.sum() + extra == pytest.approx(terms[:-1].sum(), rel=1e-3)


def test_a_device_twice_as_fast_is_nowhere_slower() -> None:
    twice = Chip(200e12, 400e12, 50e12, 2e12, 100.0, 2**24, is_cpu=False)
    for batch in (1, 8, 64, 1024):
        slow, fast = (
            TIMES.kernel_seconds(net(), chip, np.array([float(batch)]), "eager")[0]
            for chip in (CHIP, twice)
        )
        assert (fast <= slow).all()
    assert fast[0] == pytest.approx(slow[0] / 2)


@pytest.mark.parametrize("most", [8, 40, 1_000_000])
def test_many_devices_and_batch_sizes_take_what_each_takes_alone(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also where they are computed in several parts, so that memory is bounded."""
    sizes = np.array([1.0, 3.0, 700.0, 4096.0, 5.0])
    other = Chip(70e12, 80e12, 20e12, 3e12, 37.0, 2**23, is_cpu=False)
    chips = [CHIP, other, CHIP]
    alone = [
        [float(law_seconds(TIMES, net(), [chip], sizes[[i]], "compiled")[0, 0]) for i in range(5)]
        for chip in chips
    ]
    monkeypatch.setattr(batch_interpolation, "_MOST_TIMES", most)
    assert law_seconds(TIMES, net(), chips, sizes, "compiled").tolist() == alone
    assert alone[0] != alone[1]
