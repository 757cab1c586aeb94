"""Variance components: recovery from simulated devices, and variances of correlated sums."""

import numpy as np
import pytest

from forerun.features.operators.features import FAMILIES
from forerun.models.operators.intervals import (
    ErrorComponents,
    HeldOut,
    Shared,
    novelty_share,
    reach,
)

LINEAR, SOFTMAX = FAMILIES.index("linear"), FAMILIES.index("softmax")
DEVICE, FAMILY, SITE, KERNEL = 0.2, 0.1, 0.08, 0.05


def simulated(devices: int, seed: int = 0, novelty: float = 1e6) -> list[HeldOut]:
    """Errors with known standard deviations of device, device x family, site and kernel."""
    random = np.random.default_rng(seed)
    parts = []
    for device in range(devices):
        of_device = random.normal(0, DEVICE)
        for family in ("linear", "bmm", "softmax", "elementwise"):
            shared = of_device + random.normal(0, FAMILY)
            site = np.repeat(np.arange(40.0), 10)
            own = random.normal(0, SITE, 40)[site.astype(int)]
            errors = shared + own + random.normal(0, KERNEL, len(site))
            parts.append(HeldOut(family, str(device), novelty, errors, site))
    return parts


def test_components_of_simulated_errors_are_recovered():
    found = ErrorComponents.of([], simulated(200))
    assert np.sqrt(found.unseen.device) == pytest.approx(DEVICE, rel=0.15)
    assert np.sqrt(found.unseen.families["linear"]) == pytest.approx(FAMILY, rel=0.3)
    assert np.sqrt(found.site["linear"]) == pytest.approx(SITE, rel=0.1)
    assert np.sqrt(found.kernel["linear"]) == pytest.approx(KERNEL, rel=0.1)


def test_degrees_of_freedom_count_devices_and_not_rows():
    assert ErrorComponents.of([], simulated(5)).unseen.freedom == 4.0


def test_intervals_of_simulated_devices_hold_nine_in_ten():
    """Mean coverage over many sets of training devices, as that of one set of five varies."""
    shares = np.zeros((1, len(FAMILIES)))
    shares[0, LINEAR] = 1.0
    fresh = simulated(300, seed=1000)
    errors = np.abs(np.concatenate([p.errors for p in fresh if p.family == "linear"]))
    held = []
    for seed in range(40):
        found = ErrorComponents.of([], simulated(5, seed=seed))
        shared, freedom = found.shared_variance(shares, np.array([1e6]))
        width = reach(shared + found.site["linear"] + found.kernel["linear"], freedom, 0.9)
        held.append(np.mean(errors <= width))
    assert 0.86 < np.mean(held) < 0.97


def components() -> ErrorComponents:
    near = Shared(0.0, {"": 0.0025}, 20.0)
    far = Shared(DEVICE**2, {"": FAMILY**2}, 4.0)
    return ErrorComponents(near, far, {"": SITE**2}, {"": KERNEL**2})


def test_a_sum_is_less_sure_than_independent_errors_and_surer_than_correlated_ones():
    shares = np.full((1, len(FAMILIES)), 1 / len(FAMILIES))
    shared, _ = components().shared_variance(shares, np.array([3.0]))
    families = np.arange(len(FAMILIES))
    own = components().own_variance(
        np.zeros(len(FAMILIES), dtype=np.intp), shares[0], families, families * 1.0, families * 1.0
    )
    whole = shared + own
    single, _ = components().shared_variance(np.eye(len(FAMILIES))[:1], np.array([3.0]))
    one = single + SITE**2 + KERNEL**2
    assert one / len(FAMILIES) < whole < one


def test_equal_kernels_do_not_average_out():
    owner, share = np.zeros(4, dtype=np.intp), np.full(4, 0.25)
    family = np.full(4, LINEAR)
    alike = components().own_variance(owner, share, family, np.ones(4), np.ones(4))
    unlike = components().own_variance(owner, share, family, np.arange(4.0), np.arange(4.0))
    assert alike[0] == pytest.approx(SITE**2 + KERNEL**2)
    assert unlike[0] == pytest.approx((SITE**2 + KERNEL**2) / 4)


def test_width_grows_with_novelty():
    shares = np.eye(len(FAMILIES))[[SOFTMAX]]
    widths = []
    for novelty in (0.0, 0.3, 1.0, 3.0, np.inf):
        variance, freedom = components().shared_variance(shares, np.array([novelty]))
        widths.append(float(reach(variance, freedom, 0.9)[0]))
    assert np.all(np.diff(widths) > 0)
    assert float(novelty_share(0.0)) == 0.0
    assert float(novelty_share(np.inf)) == pytest.approx(1.0)
