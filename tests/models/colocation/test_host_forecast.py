"""Metrics of a host put together from profiles, and CPUs shared fairly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.host_windows import NAMES, level
from forerun.models.colocation.host_forecast import Mixing, granted
from tests.contracts.fitted_colocation import boost
from tests.contracts.tiny_colocation import GUEST, METRICS, profile, truth


def test_combined_profiles_come_near_what_is_measured_with_a_profiled_neighbour():
    part = boost()
    assert part.mixing.pairs > 0
    window = part.mixing.together([profile("table"), profile("chase")], part.idle, part.idle)
    query = Query(Colocation(profile("table"), window, estimated=True), GUEST)
    answer = part.predict([query])
    usual, _ = truth("table", "victim:chase", 0.65)
    assert answer.values["p_cpu"][0] == pytest.approx(usual, abs=0.15)
    assert not answer.limits[0], "a host put together within the training range is no limit"


def test_mixing_weights_are_recovered():
    draw = np.random.default_rng(0)
    added = draw.uniform(0.1, 1.0, (200, len(NAMES)))
    mixing = Mixing.fit(0.6 * added, added)
    assert all(weight == pytest.approx(0.6, abs=0.03) for weight in mixing.weights.values())
    assert Mixing().together([], HostWindow(), HostWindow()) == HostWindow()


def test_more_neighbours_never_show_less():
    mixing, idle = Mixing(), HostWindow(METRICS, ((0.1, 0.05, 20.0, 0.0),))
    one = level(mixing.together([profile("chase")], idle, idle))
    two = level(mixing.together([profile("chase"), profile("sweep")], idle, idle))
    known = ~np.isnan(one)
    assert (two[known] >= one[known] - 1e-9).all()


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12), st.floats(0.5, 8.0))
def test_cpus_are_shared_fairly_and_none_is_left_idle_while_anybody_waits(demands, cpus):
    got = granted(demands, cpus) * np.array(demands)
    assert (got <= np.array(demands) + 1e-9).all()
    assert got.sum() == pytest.approx(min(cpus, sum(demands)))
    waiting = got < np.array(demands) - 1e-9
    if waiting.any():
        assert got[waiting].min() >= got.max() - 1e-9, "who waits has no less than anybody"
