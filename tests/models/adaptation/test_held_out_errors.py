"""Half-widths from a few held-out groups: Student quantiles for groups, not for rows."""

import numpy as np
import pytest
from scipy.stats import t as student

from forerun.data.level import HALF_WIDTH
from forerun.models.adaptation.support_gp import (
    PRIOR_DEVIATION,
    PRIOR_GROUPS,
    SELECTION,
    STRATUM_GROUPS,
    GroupDeviations,
)


def deviations_of(errors, rows_a_group=1):
    groups = np.repeat(np.arange(len(errors)), rows_a_group)
    repeated = np.repeat(errors, rows_a_group)
    return GroupDeviations.of(repeated, np.full(len(repeated), "eager"), groups)


def half_width(spread):
    return HALF_WIDTH * float(spread.deviation(np.array(["eager"]), np.zeros(1))[0])


@pytest.mark.parametrize("count", [3, 10, 30, 300])
def test_half_a_width_is_that_of_a_normal_whose_spread_is_known_from_so_many_groups(count):
    """The half-width is s t(n + prior) sqrt(1 + 1 / n) times `SELECTION`.

    s is the root mean square of the groups' errors and of pseudo-groups at the prior deviation.
    """
    errors = np.random.default_rng(count).uniform(-0.2, 0.2, count)
    pooled = PRIOR_GROUPS * PRIOR_DEVIATION**2 + (errors**2).sum()
    pooled /= PRIOR_GROUPS + count
    square = (STRATUM_GROUPS * pooled + (errors**2).sum()) / (STRATUM_GROUPS + count)
    quantile = student.ppf(0.95, STRATUM_GROUPS + count)
    wanted = SELECTION * quantile * np.sqrt(square * (1.0 + 1.0 / count))
    assert half_width(deviations_of(errors)) == pytest.approx(wanted, rel=1e-6)


def test_rows_of_one_group_do_not_count_as_groups():
    errors = np.array([0.1, -0.05, 0.2])
    assert half_width(deviations_of(errors, 50)) == pytest.approx(half_width(deviations_of(errors)))
    assert half_width(deviations_of(np.tile(errors, 50))) < 0.9 * half_width(deviations_of(errors))


def test_groups_never_measured_lie_inside_nine_times_in_ten_or_more():
    """Groups with random errors, whose standard deviation is estimated."""
    random, held = np.random.default_rng(0), []
    for _ in range(300):
        scale = PRIOR_DEVIATION * np.exp(random.normal(0.0, 0.3))
        width = half_width(deviations_of(random.normal(0.0, scale, 5)))
        held.append(np.mean(np.abs(random.normal(0.0, scale, 200)) <= width))
    assert 0.9 < np.mean(held) < 0.98
