"""The map from a plan to a device's peak: recovered exactly, robust, and right about censoring."""

from dataclasses import astuple

import numpy as np
import pytest

from forerun.features.memory.plan import MemoryPlan
from forerun.features.memory.traits import TRAITS
from forerun.models.memory.fitted_peaks import AffineMap

TRUE = AffineMap(
    reserved=1.1, largest_convolution=0.5, convolutions=0.25, library=300.0, context=700.0
)


def plan(reserved, largest=0.0, convolutions=0.0):
    traits = [0.0] * len(TRAITS)
    traits[-1] = float(convolutions > 0)
    return MemoryPlan(0.9 * reserved, reserved, {}, convolutions, largest, tuple(traits))


def plans(count=40, seed=0):
    rng = np.random.default_rng(seed)
    return [
        plan(rng.uniform(100, 9000), *(rng.uniform(10, 500, 2) if n % 2 else (0.0, 0.0)))
        for n in range(count)
    ]


def peaks(known, of=TRUE):
    return np.array([of.peak(one) for one in known])


def none(known):
    return np.full(len(known), np.nan)


def test_a_peak_by_hand():
    one = plan(1000.0, 100.0, 400.0)
    assert TRUE.workspace(one) == 0.5 * 100 + 0.25 * 400
    assert TRUE.own(one) == 700 + 300
    assert TRUE.peak(one) == 1.1 * 1000 + 150 + 1000
    assert TRUE.own(plan(1000.0)) == 700, "no library of convolutions"
    assert AffineMap(1.0, -9.0, 0.0, 0.0, 0.0).workspace(one) == 0.0


def test_exact_peaks_give_the_map_back():
    known = plans()
    found = AffineMap.fit(known, peaks(known), none(known))
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=1e-6)


def test_a_search_for_convolutions_that_a_sample_caught_moves_nothing():
    """The least absolute error leaves outliers aside, where the least square would follow them."""
    known = plans()
    measured = peaks(known)
    measured[[3, 11, 19]] += 6000.0
    found = AffineMap.fit(known, measured, none(known))
    rest = np.delete(np.arange(len(known)), [3, 11, 19])
    assert peaks(known, found)[rest] == pytest.approx(measured[rest], rel=0.01)


def test_runs_out_of_memory_count_only_where_the_fit_lies_below_them():
    known = plans()
    measured, at_least = peaks(known), none(known)
    large = [plan(20_000.0 + 10.0 * n) for n in range(60)]
    censored = np.concatenate([measured, none(large)])
    below = np.concatenate([at_least, np.full(60, 15_000.0)])
    found = AffineMap.fit(known + large, censored, below)
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=1e-6), "they needed more anyway"
    above = np.concatenate([at_least, np.full(60, 40_000.0)])
    raised = AffineMap.fit(known + large, censored, above)
    assert raised.peak(large[0]) > 1.2 * TRUE.peak(large[0])


def test_what_never_varies_is_not_told_apart_from_the_context():
    known = [plan(100.0 * n) for n in range(1, 20)]
    found = AffineMap.fit(known, peaks(known), none(known))
    assert (found.library, found.convolutions, found.largest_convolution) == (0.0, 0.0, 0.0)
    assert (found.reserved, found.context) == pytest.approx((1.1, 700.0))
