"""Sentences about co-location, each where it holds and nowhere else."""

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.models.colocation.booster import (
    NEW,
    NO_WINDOW,
    PROFILED,
    SCATTERED,
    UNLIKE_ALL,
    limits_of,
)
from forerun.models.colocation.features import ColocationRows
from forerun.models.domain.feature_range import FeatureRange
from tests.devices import HOST

SEEN = HostWindow(("load.running", "probe.read_gbs"), ((3.0, 8.0),))


def lines(mode="known", seen=SEEN, unlike=False, training=("load.running",), ranges=None, **more):
    estimated = more.pop("estimated", False)
    query = Query(Colocation(ProgramProfile("a", **more), seen, estimated=estimated), HOST)
    rows = ColocationRows.from_queries([query])
    modes, flags = np.array([mode]), np.array([unlike])
    found = limits_of(rows, modes, training, ranges, flags)[0]
    return tuple(map(str, found))


@pytest.mark.parametrize(
    ("mode", "expected"), [("known", ()), ("new", (NEW,)), ("profiled", (PROFILED,))]
)
def test_what_an_answer_rests_on_is_said(mode, expected):
    assert lines(mode) == expected
    assert lines(mode, unlike=True) == (*expected, UNLIKE_ALL)


def test_a_new_program_whose_times_scatter_has_a_sentence_of_its_own():
    assert lines("new", cpu_spread=0.02) == (SCATTERED,)
    assert lines("known", cpu_spread=0.02) == ()


def test_without_a_window_that_is_all_there_is_to_say():
    assert lines("new", seen=HostWindow(), training=("cpu.idle_share",)) == (NEW, NO_WINDOW)


def test_missing_metrics_are_counted_but_those_that_cannot_be_had():
    wanted = ("load.running", "disk.io_share", "probe.evicted", "own_cpu.user_share")
    assert lines(training=wanted) == ("metrics of the host that training had are missing: 2",)
    own = ("task.cpu_share", "disk.io_share")
    (line,) = lines(training=own, estimated=True)
    assert line.endswith("missing: 1"), "a forecast cannot read the program's own metrics"
    assert lines(training=own)[0].endswith("missing: 2")


def test_medians_are_compared_in_their_own_units():
    """The probe is a logarithm inside, gigabytes a second in the sentence."""
    names = ("load.running", "probe.read_gbs")
    inside = FeatureRange(names, np.array([0.0, 5.0]), np.array([4.0, 10.0]))
    assert lines(ranges=inside) == ()
    outside = FeatureRange(names, np.array([0.0, 9.0]), np.array([4.0, 10.0]))
    (line,) = lines(ranges=outside)
    assert line == "probe.read_gbs is 8, the training set has 9 to 10"
