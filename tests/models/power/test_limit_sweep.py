"""A sweep of power limits is plain data: what each costs, the front, and the choices."""

import math
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.graph import Operator
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.baselines.roofline import Roofline
from forerun.models.power.limit_sweep import power_sweep
from forerun.models.power.training_jobs import PowerCap
from forerun.models.router import Router
from tests.contracts.power_runs import GPUS, query, runs

CATALOG = DeviceCatalog.load()
V100, T4 = CATALOG.get("v100-pcie-32gb"), CATALOG.get("t4")
LIMITS = st.lists(st.floats(90.0, 320.0), min_size=1, max_size=15)


@cache
def predictor():
    return Router((PowerCap(calibrated=False).fit(runs(GPUS[:2], (16, 256))),))


@given(LIMITS, st.floats(0.0, 1.0))
def test_choices_are_the_best_of_what_was_swept(limits, slow_down):
    sweep = power_sweep(predictor(), query(V100, None), limits)
    energies = [run.energy_j.value for run in sweep.runs]
    fastest = min(run.latency_ms.value for run in sweep.runs)
    assert sweep.least_energy.energy_j.value == min(energies)
    chosen = sweep.within(slow_down)
    allowed = fastest * (1.0 + slow_down)
    assert chosen.latency_ms.value <= allowed * (1 + 1e-9)
    fitting = [r.energy_j.value for r in sweep.runs if r.latency_ms.value <= allowed]
    assert chosen.energy_j.value <= min(fitting)


@given(LIMITS)
def test_limits_rise_power_rises_time_falls_and_energy_is_their_product(limits):
    runs_ = power_sweep(predictor(), query(V100, None), limits).runs
    assert [run.limit_w for run in runs_] == sorted(set(limits))
    for lower, higher in pairwise(runs_):
        assert lower.power_w.value <= higher.power_w.value * (1 + 1e-12)
        assert lower.latency_ms.value >= higher.latency_ms.value * (1 - 1e-12)
    for run in runs_:
        joules = run.power_w.value * run.latency_ms.value / 1e3
        assert run.energy_j.value == pytest.approx(joules)
    assert runs_[-1].slow_down == runs_[-1].saving == 0.0


@given(LIMITS)
def test_nothing_on_the_front_is_beaten_and_the_rest_is(limits):
    runs_ = power_sweep(predictor(), query(V100, None), limits).runs
    pairs = [(run.latency_ms.value, run.energy_j.value) for run in runs_]
    for run, mine in zip(runs_, pairs, strict=True):
        beaten = any(a <= mine[0] and b <= mine[1] and (a, b) != mine for a, b in pairs)
        assert run.on_front is not beaten


def test_of_limits_that_cost_alike_the_highest_is_taken():
    """None of them is felt: there is no reason to set one."""
    sweep = power_sweep(predictor(), query(V100, None), [250.0, 260.0, 300.0])
    assert sweep.least_energy.limit_w == 300.0


@pytest.mark.parametrize(
    "limits", [[], [0.0], [-5.0], [math.nan], [math.inf], [1.0 + n for n in range(1001)]]
)
def test_limits_that_mean_nothing_are_refused(limits):
    with pytest.raises(InputError):
        power_sweep(predictor(), query(V100, None), limits)


def test_a_negative_slow_down_is_refused():
    sweep = power_sweep(predictor(), query(V100, None), [150.0])
    for wrong in (-0.1, math.nan):
        with pytest.raises(InputError, match="slow-down"):
            sweep.within(wrong)


def test_a_workload_without_a_power_is_refused_by_name():
    kernel = Query(Kernel(Operator("elementwise", "relu", ((8, 64),), ((8, 64),))), T4)
    with pytest.raises(UnanswerableQuery, match="No power"):
        power_sweep(Roofline(), kernel, [60.0])
