"""Intervals of networks: held-out families set their level, held-out devices their width."""

import numpy as np
import pytest
from scipy.stats import norm

from forerun.data.level import LEVEL
from forerun.models.networks.intervals import (
    CalibrationRows,
    WidthLaw,
    _coverage,
    _covering,
    intervals_of,
)

SHIFT = 0.117
"""Standard deviation of log(sustained / nominal) over seven GPUs (AIConfigurator's tables)."""


def training_rows(devices=("small", "large")):
    """Eighteen families in eager and compiled runs at three batch sizes, on each device."""
    count = 108
    modes = np.tile(["eager", "compiled"], count // 2 * len(devices))
    family = np.tile(np.repeat([f"family {i}" for i in range(18)], 6), len(devices))
    return CalibrationRows(modes, family, np.repeat(devices, count))


def without_errors(used, held):
    return np.zeros(int(held.sum()))


def test_a_device_never_measured_may_be_off_as_a_whole_though_each_kernel_is_known():
    """All errors are zero: the deviation of GPUs' sustained rates remains, with the uncertainty of
    a mean over the two training devices.
    """
    training = training_rows()
    count = len(training.device)
    found = intervals_of(training, np.zeros(count), np.ones(count), without_errors)
    wanted = norm.ppf(0.5 + LEVEL / 2) * SHIFT * np.sqrt(1.0 + 1.0 / 2)
    for low, high in found.unseen.bounds.values():
        assert -low == high
        assert high == pytest.approx(wanted, rel=0.03)
    assert found.seen.bounds["all"] == (0.0, 0.0)


def test_fewer_devices_in_training_leave_others_less_certain():
    widths = []
    for devices in (("small",), ("small", "large")):
        rows, count = training_rows(devices), 108 * len(devices)
        found = intervals_of(rows, np.zeros(count), np.ones(count), without_errors)
        widths.append(found.unseen.bounds["all"][1])
    assert widths[0] > widths[1]


def test_errors_that_families_share_widen_the_level_until_other_families_are_covered():
    """Quantiles at a level of 90 % cover fewer than 90 % of the rows of held-out families."""
    random = np.random.default_rng(3)
    families = np.repeat([f"family {i}" for i in range(24)], 12)
    scores = np.repeat(random.standard_t(3, 24), 12) + 0.1 * random.normal(size=288)
    strata = np.full(288, "eager")
    assert _coverage(scores, strata, families, 0.9) < 0.9
    found = _covering(scores, strata, families)
    held = (found.bounds["all"][0] <= scores) & (scores <= found.bounds["all"][1])
    assert held.mean() > 0.93
    assert found.coverage == LEVEL


@pytest.mark.parametrize(("power", "slope"), [(0.0, 0.0), (1.0, 0.0), (0.7, 1.5)])
def test_the_law_of_widths_is_found_again_where_errors_follow_it(power, slope):
    random = np.random.default_rng(0)
    spreads, novelty = random.uniform(0.02, 0.3, 6000), random.uniform(0.0, 1.0, 6000)
    law = WidthLaw(power, slope)
    errors = random.laplace(0.0, 0.3 * law.scale(spreads, novelty))
    found = WidthLaw.of(errors, spreads, novelty, np.arange(6000).astype(str))
    assert found.spread_power == pytest.approx(power, abs=0.08)
    assert found.novelty_slope == pytest.approx(slope, abs=0.12)


def test_rows_on_processors_have_bounds_of_their_own():
    training = training_rows()
    on_cpu = np.arange(216) % 4 < 2
    mixed = training._replace(modes=np.where(on_cpu, "cpu", training.modes))
    errors = np.where(on_cpu, 1.0, 0.0)
    found = intervals_of(mixed, errors, np.ones(216), without_errors).unseen
    assert found.bounds["cpu"][1] > 2 * found.bounds["compiled"][1]


def test_each_device_held_out_counts_alike_however_many_rows_it_has():
    """A device with most of the rows and no errors does not dominate the other one."""
    training = training_rows(("small", "small", "small", "large"))

    def refit_errors(used, held):
        off = 0.5 if (training.device[held] == "large").all() else 0.0
        return np.full(int(held.sum()), off)

    found = intervals_of(training, np.zeros(432), np.ones(432), refit_errors).unseen
    low, high = found.bounds["all"]
    assert -low == high
    # A third of what was held out is off by 0.5 and a shift, so that 90 % reach beyond it.
    assert high > 0.5


def test_modes_that_one_device_alone_has_are_not_asked_of_it():
    """A fit without that device saw no such row."""
    training = training_rows()
    only = (training.device == "large") & (np.arange(216) % 4 == 0)
    training = training._replace(modes=np.where(only, "training", training.modes))
    asked = []

    def refit_errors(used, held):
        asked.append(set(training.modes[held]))
        assert not (used & held).any()
        assert len(set(training.device[held])) == 1
        return np.zeros(int(held.sum()))

    intervals_of(training, np.zeros(216), np.ones(216), refit_errors)
    assert asked == [{"eager", "compiled"}] * 2


def test_devices_that_carry_the_errors_of_others_are_covered_as_often_as_promised():
    """Simulated devices and families with shifts of known standard deviations."""
    training, random, held = training_rows(), np.random.default_rng(0), []
    families, family = np.unique(training.family, return_inverse=True)
    for _ in range(20):
        own = random.normal(0.0, 0.08, len(families))[family]
        shifts = random.normal(0.0, SHIFT, 2)
        rows = own + random.normal(0.0, 0.03, 216)

        def refit_errors(used, out, rows=rows, shifts=shifts):
            on = int(training.device[out][0] == training.device[0])
            return rows[out] + shifts[on] - shifts[1 - on]

        found = intervals_of(training, rows, np.ones(216), refit_errors)
        fresh = random.normal(0.0, np.hypot(0.08, 0.03), 400)
        fresh += random.normal(0.0, SHIFT) - shifts.mean()
        held.append(np.mean(np.abs(fresh) <= found.unseen.bounds["all"][1]))
    assert 0.9 <= np.mean(held) < 0.99
