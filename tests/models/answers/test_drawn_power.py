"""No answer about a network or an operator has more power than its device draws."""

from dataclasses import replace
from importlib.resources import files

import pandas as pd
import pytest

from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark, Kernel, Network
from forerun.models.answers.drawn_power import (
    ABOVE_DESIGN_POWER,
    most_w,
    within_drawn,
)
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.prediction import Estimate
from forerun.service.answers.answer import answers_to
from forerun.service.answers.power_sweep import swept
from forerun.service.answers.question import question_about
from forerun.training.protocols.power.zeus_powercap import board
from tests.devices import CATALOG
from tests.models.networks.test_device_time import network

GPUS = tuple(device for device in CATALOG if device.kind == "gpu" and device.tdp_w)
ASKED = ("latency_ms", "power_w", "energy_j")
HEAVY = Network(network(512, 12), 256)


@pytest.fixture(scope="module")
def in_use():
    return InUse(bundled(Scope(frozenset({"network", "kernel"}))))


def limited(device, limit_w=None, workload=HEAVY):
    return Query(workload, CATALOG.get(device), operation=Operation(power_limit_w=limit_w))


def answered(queries, in_use):
    return answers_to([question_about(query, ASKED) for query in queries], in_use)


def test_no_device_draws_more_than_its_design_power(in_use):
    kernel = Kernel(HEAVY.graph.operators[0])
    queries = [Query(run, gpu) for gpu in GPUS for run in (HEAVY, kernel)]
    at_it = 0
    for query, answer in zip(queries, answered(queries, in_use), strict=True):
        power, tdp = answer.metrics["power_w"], query.device.tdp_w
        if power is not None:
            most = tdp * ABOVE_DESIGN_POWER.get(query.device.name, 1.0)
            assert power.low <= power.value <= power.high <= most, query.device.name
            assert power.value <= tdp
            at_it += power.high == tdp
    assert at_it > 10


def test_energy_is_the_product_of_time_and_the_power_that_is_answered(in_use):
    (answer,) = answered([limited("rtx-4090")], in_use)
    power, time, energy = (answer.metrics[name] for name in ("power_w", "latency_ms", "energy_j"))
    assert power.high == 450.0
    for end in ("value", "low", "high"):
        product = getattr(power, end) * getattr(time, end) / 1e3
        assert getattr(energy, end) == pytest.approx(product)


@pytest.mark.parametrize(("device", "share"), [("rtx-4090", 1.0), ("a40", 1.012)])
def test_under_a_limit_power_ends_at_the_limit_or_at_what_was_measured_above_it(
    in_use, device, share
):
    watts = [0.5 * CATALOG.get(device).tdp_w, 0.8 * CATALOG.get(device).tdp_w]
    found = answered([limited(device, own) for own in watts], in_use)
    runs = swept(limited(device), watts, 0.1, in_use).runs
    for own, answer, run in zip(watts, found, runs, strict=True):
        power = answer.metrics["power_w"]
        assert power.value <= power.high <= share * own
        assert power.high == pytest.approx(share * own)
        assert (run.power_w.value, run.power_w.high) == (power.value, power.high)


def test_an_end_above_the_design_power_has_a_note(in_use):
    a30, l4 = answered([limited("a30"), limited("l4")], in_use)
    assert a30.metrics["power_w"].high > 165.0
    said = "power: runs on this device drew up to 0.8 % more than its design power"
    assert said in a30.limits
    assert not any("more than its" in line for line in l4.limits)


def test_a_limit_above_the_design_power_bounds_nothing():
    assert most_w(limited("rtx-4090", 600.0)) == most_w(limited("rtx-4090")) == 450.0
    assert most_w(limited("rtx-4090", 300.0)) == 300.0
    unknown = CATALOG.get("rtx-4090").model_copy(update={"tdp_w": None})
    assert most_w(Query(HEAVY, unknown)) is None


def test_what_a_user_measured_above_the_design_power_stays_inside():
    own = {"power_w": Estimate(440.0, 400.0, 472.0, 0.9)}
    assert within_drawn(own, limited("rtx-4090"), measured=True) == own
    high = within_drawn(own, limited("rtx-4090"), measured=False)["power_w"]
    assert high == replace(own["power_w"], high=450.0)


def test_jobs_that_were_measured_under_limits_are_left_as_they_are():
    job = limited("a40", 100.0, Benchmark("zeus", ()))
    own = {"power_w": Estimate(130.0, 120.0, 140.0, 0.9)}
    assert within_drawn(own, job, measured=False) == own


def test_nothing_that_was_measured_lies_above_the_bound(reference):
    """Averages above the design power, or above a power limit, in the training set."""
    ops = pd.read_parquet(reference / "torch_op_energy" / "ops.parquet")
    for device, rows in ops.groupby("device"):
        most = most_w(limited(str(device)))
        assert rows[["power_w", "train_power_w"]].max().max() <= most
    packaged = files("forerun.data") / "measured" / "torch_gpu" / "runs.parquet"
    runs = pd.read_parquet(str(packaged), columns=["device", "power_w"])
    for device, watts in runs.groupby("device")["power_w"]:
        assert watts.max() <= most_w(limited(str(device)))
    trace = pd.read_csv(reference / "zeus_powercap" / "power_trace_3gpus.csv")
    for (gpu, limit), rows in trace.groupby(["gpu", "power_limit"]):
        device = board(str(gpu), CATALOG).name
        assert rows["average_power"].max() <= most_w(limited(device, float(limit)))
