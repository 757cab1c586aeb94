"""Power intervals cover nine in ten runs on held-out chips and are narrow at the limit."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.conformal import held_out_folds
from forerun.models.power.law import Demand, PowerLaw, PowerRuns, limited_w
from forerun.models.power.operator_power import (
    MOST_SHARE,
    HeldOut,
    LawIntervals,
    calibrated,
    ends,
    held_out_runs,
)

CATALOG = DeviceCatalog.load()
NAMES = ("a30", "v100-pcie-32gb", "a40", "rtx-3090", "t4", "p100-pcie-16gb")


def runs_of(names, each=40):
    shape = (4096, 1024)
    relu = Operator("elementwise", "relu", (shape,), (shape,))
    return PowerRuns.of([Query(Kernel(relu), CATALOG.get(n)) for n in names for _ in range(each)])


def drawn(random, names, between=0.2, within=0.05):
    """Runs of several chips whose dynamic part differs from chip to chip."""
    runs = runs_of(names)
    chip = np.repeat(random.normal(0, between, len(names)), len(runs) // len(names))
    demand = PowerLaw().demand(runs)
    noisy = demand.times(np.ones(len(runs)), np.exp(chip + random.normal(0, within, len(runs))))
    return runs, demand, limited_w(runs, noisy)


def test_they_cover_runs_on_new_chips():
    random = np.random.default_rng(1)
    held = []
    for _ in range(30):
        parts = []
        for name in NAMES:
            runs, demand, watts = drawn(random, (name,))
            parts.append(HeldOut(runs, demand, watts, "unseen"))
        runs, demand, watts = drawn(random, ("a10g",))
        low, high = calibrated(parts).ends(runs, demand, ["unseen"] * len(runs))
        held.append(np.mean((low <= watts) & (watts <= high)))
    assert 0.82 < np.mean(held) <= 1.0


def test_fewer_chips_make_them_wider():
    random = np.random.default_rng(2)
    one = drawn(random, NAMES[:1])
    parts = [HeldOut(*one, "unseen")] * 6
    two, six = (calibrated(parts[:n]) for n in (2, 6))
    assert two.reach["unseen"] > six.reach["unseen"]


def test_intervals_are_narrow_where_demand_is_far_above_the_limit():
    runs = runs_of(("a30",), each=2)
    demand = Demand(np.array([33.0, 33.0]), np.array([1000.0, 60.0]))
    low, high = ends(runs, demand, ["unseen"] * 2, np.full(2, 1.5))
    assert high[0] / low[0] < 1.1
    assert high[1] / low[1] > 1.5
    assert (high <= MOST_SHARE * 165.0).all()


def test_deviations_are_the_least_that_hold_a_run():
    runs, demand, watts = drawn(np.random.default_rng(3), ("v100-pcie-32gb",))
    held = HeldOut(runs, demand, watts, "unseen")
    reach = held.deviations()
    known = ["unseen"] * len(runs)
    low, high = ends(runs, demand, known, reach * 1.001 + 1e-6)
    assert ((low <= watts) & (watts <= high)).all()
    low, high = ends(runs, demand, known, reach * 0.98)
    assert not ((low <= watts) & (watts <= high)).any()


def test_without_a_second_chip_the_interval_covers_the_whole_range():
    runs = runs_of(("a30",))
    chips = held_out_folds(runs.chips)
    assert list(held_out_runs(runs, np.full(len(runs), 100.0), chips, "unseen")) == []
    low, high = LawIntervals().ends(runs, PowerLaw().demand(runs), ["unseen"] * len(runs))
    assert low == pytest.approx(0.15 * 165.0)
    assert high == pytest.approx(MOST_SHARE * 165.0)


@pytest.mark.parametrize(("waiting_w", "dynamic_w"), [(33.0, 0.0), (0.0, 90.0), (33.0, 60.0)])
def test_the_better_a_device_is_known_the_narrower_is_an_interval_of_equal_reach(
    waiting_w, dynamic_w
):
    runs = runs_of(("a30",), each=3)
    demand = Demand(np.full(3, waiting_w), np.full(3, dynamic_w))
    low, high = ends(runs, demand, ["seen", "adapted", "unseen"], np.ones(3))
    width = high - low
    assert 0 < width[0] < width[1] <= width[2]
