"""Shrinkage that held-out runs choose, and which of them count."""

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.models.colocation.booster import (
    FACTORS,
    FEWEST_HELD_OUT,
    UNMEASURED_FACTORS,
    fit_shrinkage,
    uninformative_runs,
)
from forerun.models.colocation.features import ColocationRows
from tests.devices import HOST


def measured(values, **groups):
    queries = [Query(Colocation(ProgramProfile("a"), HostWindow()), HOST)] * len(values)
    return Measurements(
        queries, {"p_cpu": np.array(values)}, {name: np.array(v) for name, v in groups.items()}
    )


@pytest.mark.parametrize("factor", FACTORS)
def test_the_factor_that_explains_the_runs_is_chosen(factor):
    deviation = np.linspace(-0.4, 0.4, 20)
    middle, names = np.full(20, -0.2), np.array(["a"] * 20)
    found = fit_shrinkage(names, middle + factor * deviation, middle, deviation)
    assert found == {"a": factor}


def test_programs_that_were_not_measured_may_deviate_more():
    deviation, middle = np.linspace(-0.4, 0.4, 20), np.zeros(20)
    keys = np.array([""] * 20)
    assert fit_shrinkage(keys, 1.5 * deviation, middle, deviation) == {"": 1.0}
    more = fit_shrinkage(keys, 1.5 * deviation, middle, deviation, UNMEASURED_FACTORS)
    assert more == {"": 1.5}


@pytest.mark.parametrize(("known", "chosen"), [(FEWEST_HELD_OUT, {"a": 0.0}), (14, {})])
def test_fewer_than_fifteen_runs_choose_nothing(known, chosen):
    deviation = np.linspace(0.1, 0.4, 20)
    target = np.where(np.arange(20) < known, 0.0, np.nan)
    assert fit_shrinkage(np.array(["a"] * 20), target, np.zeros(20), deviation) == chosen


def test_runs_that_made_the_inputs_are_not_held_out():
    """An isolated run; a run next to the load; an ordinary one; one of a program without load."""
    profiles = [ProgramProfile("a", p_cpu_beside_cache=0.7)] * 3 + [ProgramProfile("b")]
    queries = [Query(Colocation(profile, HostWindow()), HOST) for profile in profiles]
    rows = ColocationRows.from_queries(queries)
    given = measured(
        [1.0, 0.7, 0.6, 0.6],
        neighbour=["none", "load", "x", "x"],
        profile=["", "profile run", "", ""],
    )
    assert uninformative_runs(rows, given, "known").tolist() == [False] * 4
    assert uninformative_runs(rows, given, "new").tolist() == [True, False, False, False]
    assert uninformative_runs(rows, given, "profiled").tolist() == [True, True, False, True]
