"""Plans of a GPU: precisions, networks and execution modes, in an order for budgets of minutes.

Pacing: who gets a window of power, the same each time, and how long that is.
"""

import pytest

from forerun.data.collectors.latency.gpu import GpuCollector
from forerun.data.collectors.latency.gpu_plan import (
    LONG_S,
    SHORT_S,
    Pacing,
    compiled_trials,
    gpu_plan,
    network_trials,
    precisions_of,
    recorded_trials,
)
from forerun.data.collectors.runner.collector import collect, work
from forerun.data.collectors.runner.journal import Journal
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operators import linear, touched
from forerun.data.collectors.workloads.torch_networks import NETWORKS, TIMM_NETWORKS, ZOOS
from forerun.data.graph import Operator

HOPPER = precisions_of((9, 0))
RATES = {"fp32": 3e13, "tf32": 1e14, "fp8": 4e14}
"""FLOP/s that a GPU of 67 TFLOP/s in fp32 reaches in networks and products; 1.5e14 in halves."""
BANDWIDTH = 3e12
LAUNCH_S = {"kernel": 3e-5, "inference": 0.01, "training": 0.04}
"""The shortest runs: what a program takes to launch a kernel, a network, a step of training."""
START_S = 15.0
"""From a command to its first trial: importing torch, a context on the GPU, the plan."""
HOST_S = {"kernel": 0.05, "eager": 0.4, "recorded": 0.8, "compiled": 25.0}
"""Making operands or a network, cold first runs, giving memory back, asking NVML."""


class H200(GpuCollector):
    """The collector with its own plan and pacing, on a clock that trials of likely length move."""

    now = 0.0

    def plan(self):
        return gpu_plan(HOPPER, self.step, self.only, self.fixed_s)

    def about(self):
        return {"device": "h200"}

    def measure(self, trial):
        pace = self.pacing.of(trial)
        run_s, watch, power = likely_s(trial), pace.latency, pace.power(trial)
        # A window that drifts is taken twice: one in four, here.
        window_s = 1.25 * max(watch.least * run_s, min(watch.budget_s, watch.most * run_s))
        took = host_s(trial) + max(2 * run_s, watch.warm_up_s) + window_s + 2 * run_s
        took += power.total_s + 3 * run_s if power else 0.0
        object.__setattr__(self, "now", self.now + took)
        return {"status": "ok", "latency_ms": 1e3 * run_s} | (
            {"power_window_s": power.seconds} if power else {}
        )


def likely_s(trial):
    busy_s = work(trial) / RATES.get(trial.precision, 1.5e14)
    if isinstance(trial.subject, Operator):
        return max(LAUNCH_S["kernel"], busy_s, 4 * touched(trial.subject) / BANDWIDTH)
    return max(LAUNCH_S[trial.phase], busy_s)


def host_s(trial):
    if isinstance(trial.subject, Operator):
        return HOST_S["kernel"]
    return HOST_S["recorded" if trial.cuda_graph else trial.runtime]


def nine_minutes(tmp_path, only=None, minutes=9):
    """Rows of one call with the defaults; nothing is begun that ends later."""
    collector = H200(only=only)
    journal = Journal.for_table(tmp_path / f"{only}.parquet")
    budget_s = 60 * minutes - START_S
    collect(collector, journal, budget_s, clock=lambda: collector.now)
    assert collector.now <= 1.01 * budget_s
    return journal.rows()


def test_nine_minutes_hold_three_thousand_operators_of_every_kind_and_precision(tmp_path):
    rows = nine_minutes(tmp_path, "operators")
    assert len(rows) >= 3000
    assert {row["precision"] for row in rows} == {"fp32", "tf32", "fp16", "bf16", "fp8"}
    assert sum("power_window_s" in row for row in rows) >= 500


def test_nine_minutes_hold_sixty_networks_at_three_sizes_in_both_phases_with_power(tmp_path):
    rows = nine_minutes(tmp_path, "networks")
    sizes = {}
    for row in rows:
        sizes.setdefault((row["workload"], row["phase"]), set()).add(row["batch_size"])
    whole = {key for key, found in sizes.items() if len(found) >= 3}
    assert len({name for name, phase in whole if (name, "training") in whole}) >= 60
    assert len({name for name, phase in whole if (name, "inference") in whole}) >= 60
    assert all("power_window_s" in row for row in rows)
    assert sum(row["power_window_s"] >= 2 for row in rows) >= 15


def test_nine_minutes_hold_every_network_recorded_in_both_phases_and_several_precisions(tmp_path):
    rows = nine_minutes(tmp_path, "recorded")
    met = {}
    for row in rows:
        assert row["cuda_graph"]
        met.setdefault((row["workload"], row["phase"]), set()).add(row["precision"])
    assert set(met) == {(name, phase) for name in NETWORKS for phase in ("inference", "training")}
    assert all(len(precisions) >= 2 for precisions in met.values())


def test_networks_of_timm_are_planned_in_place_of_the_own_ones():
    plan = gpu_plan(HOPPER, 8, "recorded", lambda trial: 1.0, ZOOS["timm"])
    assert {trial.subject.name for trial in plan} == set(TIMM_NETWORKS)


def test_nine_minutes_hold_some_compiled_networks(tmp_path):
    rows = nine_minutes(tmp_path, "compiled")
    assert len(rows) >= 15
    assert {row["runtime"] for row in rows} == {"compiled"}


def test_in_one_call_the_parts_share_the_budget(tmp_path):
    rows = nine_minutes(tmp_path, minutes=36)
    assert sum(row["kind"] == "kernel" for row in rows) >= 3000
    networks = [row for row in rows if row["kind"] == "network"]
    eager = [r for r in networks if r["runtime"] == "eager" and not r.get("cuda_graph")]
    assert len(eager) >= 360
    assert sum(row["runtime"] == "compiled" for row in rows) >= 5
    few = nine_minutes(tmp_path / "few", minutes=3)
    assert {row["kind"] for row in few} == {"kernel", "network"}
    assert {row["runtime"] for row in few} == {"eager"}


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [
        ((9, 0), {"fp32", "tf32", "fp16", "bf16", "fp8", "amp", "amp_bf16"}),
        ((7, 5), {"fp32", "fp16", "amp"}),
        ((6, 1), {"fp32"}),
    ],
)
def test_a_plan_spans_the_precisions_that_the_gpu_has(capability, precisions):
    plan = gpu_plan(precisions_of(capability), 8, None, lambda trial: 1.0)
    assert {trial.precision for trial in plan} == precisions
    assert len({trial.key for trial in plan}) == len(plan)


def test_networks_are_run_in_every_way():
    parts = (network_trials, recorded_trials, compiled_trials)
    trials = [trial for part in parts for trial in part(("fp32", "fp16"))]
    modes = {(t.phase, t.runtime, t.cuda_graph) for t in trials}
    assert modes == {
        ("inference", "eager", False),
        ("inference", "eager", True),
        ("inference", "compiled", False),
        ("training", "eager", False),
        ("training", "eager", True),
        ("training", "compiled", False),
    }
    assert {t.subject.name for t in trials} == set(NETWORKS)
    assert not [t for t in trials if t.phase == "training" and t.precision == "fp16"]


def test_each_network_is_met_in_one_precision_before_any_in_two_and_precisions_take_turns():
    first = list(network_trials(HOPPER))[: 6 * len(NETWORKS)]
    assert {(t.subject.name, t.phase, t.batch_size) for t in first} == {
        (name, phase, size)
        for name, definition in NETWORKS.items()
        for phase in ("inference", "training")
        for size in definition.sizes
    }
    met = {}
    for trial in first:
        met.setdefault((trial.subject.name, trial.phase), set()).add(trial.precision)
    assert all(len(precisions) == 1 for precisions in met.values())
    assert len({p for (_, phase), (p,) in met.items() if phase == "training"}) == 4


def test_small_networks_are_compiled_first_and_each_has_its_eager_row():
    compiled = [*recorded_trials(HOPPER), *compiled_trials(HOPPER)]
    rows = {(t.subject.name, t.precision, t.batch_size, t.phase) for t in network_trials(HOPPER)}
    assert {(t.subject.name, t.precision, t.batch_size, t.phase) for t in compiled} <= rows
    to_answer = [t for t in compiled_trials(HOPPER) if t.phase == "inference"]
    assert to_answer == sorted(to_answer, key=lambda t: t.flops)


@pytest.mark.parametrize("part", [network_trials, recorded_trials])
def test_no_precision_is_tied_to_a_batch_size_however_early_the_budget_ends(part):
    first = list(part(HOPPER))[: 2 * len(NETWORKS)]
    places = {}
    for trial in first:
        size = NETWORKS[trial.subject.name].sizes.index(trial.batch_size)
        places.setdefault((trial.precision, trial.phase), set()).add(size)
    assert all(found == {0, 1, 2} for found in places.values())


SEVERAL_OPERATORS = [Trial(linear(8, 16 * n, 16)) for n in range(1, 400)]
SEVERAL_NETWORKS = [Trial(Source("resnet50"), batch_size=n) for n in range(1, 400)]


def windows(pacing, trials):
    return [pacing.of(trial).power(trial) for trial in trials]


def test_one_operator_in_six_has_a_short_window_of_power():
    found = windows(Pacing.to_a_budget(), SEVERAL_OPERATORS)
    assert {w and w.seconds for w in found} == {None, SHORT_S}
    assert 45 <= sum(w is not None for w in found) <= 90
    assert found == windows(Pacing.to_a_budget(), SEVERAL_OPERATORS)


def test_every_network_has_a_window_and_one_in_sixteen_a_long_one_after_rest_and_warm_up():
    found = windows(Pacing.to_a_budget(), SEVERAL_NETWORKS)
    assert {w.seconds for w in found} == {SHORT_S, LONG_S}
    long = [w for w in found if w.seconds == LONG_S]
    assert 12 <= len(long) <= 40
    assert all(w.rest_s > 0 and w.warm_up_s > 0 for w in long)


def test_without_seconds_for_power_there_is_no_window():
    assert {*windows(Pacing.to_a_budget(0.0), [*SEVERAL_OPERATORS, *SEVERAL_NETWORKS])} == {None}


def test_the_time_of_a_trial_holds_all_its_windows():
    pace = Pacing.to_a_budget().networks
    for trial in SEVERAL_NETWORKS[:50]:
        power = pace.power(trial)
        least = pace.latency.warm_up_s + pace.latency.budget_s + power.seconds
        assert pace.total_s(trial) >= least + power.rest_s + power.warm_up_s
