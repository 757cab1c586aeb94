"""Grades of trust: what was measured, what is calibrated, and what is extrapolated."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.answers.served_models import subjects_measured
from forerun.models.answers.trust import Evidence, trust_by, trust_in
from forerun.models.artifact.training_record import Setting, TrainingRecord
from forerun.models.limit import LATENCY, POWER, Limit
from forerun.models.prediction import Estimate
from tests.devices import CATALOG

RELU = Operator("elementwise", "relu", ((64, 64),), ((64, 64),))
RECORD = TrainingRecord(
    keys={
        "timm_bench": {"device": ["rtx-4090"], "model": ["resnet50"]},
        "neusight": {"device": ["t4"], "op_class": ["linear"]},
        "hlsyn": {"kernel": ["gemm"]},
    }
)
CALIBRATED = Estimate(1.0, 0.5, 2.0, 0.9)
RANGE = Estimate(1.0, 0.5, 2.0)


def network(device):
    return Query(Network(OperatorGraph((RELU,))), CATALOG.get(device))


def graded(
    device="rtx-4090",
    limits=(),
    estimate=CALIBRATED,
    adapted=None,
    query=None,
    by="network_latency",
    record=RECORD,
):
    evidence = Evidence(record, {"latency_ms": by}, adapted or {})
    asked = query or network(device)
    return trust_in("latency_ms", {"latency_ms": estimate}, asked, limits, evidence)


def test_a_network_on_a_measured_device_is_graded_a():
    assert graded("rtx-4090").grade == "A"


def test_a_device_that_was_not_measured_is_graded_b():
    trust = graded("l4")
    assert trust.grade == "B"
    assert "not measured on this device" in trust.reason


def test_counts_say_whether_networks_or_operators_were_measured_on_a_device():
    """Rows of networks may have the keys of operators, such as in the power of both."""
    counted = {
        Setting("t4", "kernel", "latency_ms", "inference", "fp32", "eager"): 100,
        Setting("l4", "kernel", "latency_ms", "inference", "fp32", "eager"): 100,
        Setting("l4", "network", "latency_ms", "inference", "fp32", "eager"): 100,
        Setting("t4", "network", "power_w", "inference", "fp32", "eager"): 100,
    }
    keys = {"neusight": {"device": ["t4", "l4"], "op_shape": ["1x1"]}}
    record = TrainingRecord(keys=keys, counts={"neusight": counted})
    assert "single operators" in graded("t4", record=record).reason
    assert graded("l4", record=record).grade == "A"
    assert graded(query=Query(Kernel(RELU), CATALOG.get("t4")), record=record).grade == "A"


def test_what_was_measured_but_not_scored_on_held_out_rows_is_graded_b():
    setting = Setting("l4", "network", "latency_ms", "inference", "fp32", "eager")
    keys = {"timm_bench": {"device": ["l4"]}}
    record = TrainingRecord(keys=keys, counts={"timm_bench": {setting: 100}})

    def trust(**judged):
        return graded("l4", record=replace(record, judged=judged))

    assert trust().grade == "A", "an older release did not record it"
    assert trust(timm_bench={}).grade == "B"
    assert "no answer of this kind on this device was validated" in trust(timm_bench={}).reason
    assert trust(timm_bench={setting: (13, 13.0)}).grade == "B", "too few"
    missed = trust(timm_bench={setting: (80, 63.0)})
    assert (missed.grade, "contained 63 of 80 held-out runs" in missed.reason) == ("B", True)
    assert trust(timm_bench={setting: (80, 72.0)}).grade == "A"
    elsewhere = trust(timm_bench={}, other={setting: (80, 72.0)})
    assert elsewhere.grade == "A", "rows of another dataset count"
    other = replace(setting, precision="fp16")
    assert trust(timm_bench={other: (80, 72.0)}).grade == "B", "rows of another run do not"


def test_a_range_without_calibration_is_graded_c():
    assert graded(estimate=RANGE).grade == "C"


def test_something_outside_the_training_range_is_graded_c_and_named_in_plain_words():
    trust = graded(limits=[Limit("", LATENCY, "outside", "device_novelty", 3.0, 0.0, 1.0)])
    assert (trust.grade, trust.reason) == (
        "C",
        "extrapolated: this GPU differs from those measured in this precision",
    )


def test_a_limit_of_another_metric_or_a_note_changes_no_grade():
    limits = [Limit("of power", POWER), Limit("a note", LATENCY, "note")]
    assert graded(limits=limits).grade == "A"


def test_a_transfer_is_graded_b_with_its_sentence():
    trust = graded(limits=[Limit("a law of seven others", LATENCY, "transfer")])
    assert (trust.grade, trust.reason) == ("B", "calibrated: a law of seven others")


def counted(device, rows, runtime="eager"):
    """A record that counts rows of networks in fp32."""
    setting = Setting(device, "network", "latency_ms", "inference", "fp32", runtime)
    return replace(RECORD, counts={"timm_bench": {setting: rows}})


@pytest.mark.parametrize(
    ("device", "rows", "runtime", "grade", "said"),
    [
        ("rtx-4090", 20, "eager", "A", "measured on this device"),
        ("rtx-4090", 19, "eager", "C", "few networks were measured in this configuration"),
        ("rtx-3090", 20, "eager", "B", "but never in this configuration (fp32, eager, inference)"),
        ("rtx-4090", 20, "compiled", "C", "few networks were measured in this configuration"),
    ],
)
def test_measured_means_in_that_precision_and_runtime(device, rows, runtime, grade, said):
    keys = {"timm_bench": {"device": ["rtx-4090", "rtx-3090"]}}
    record = replace(counted("rtx-4090", rows, runtime), keys=keys)
    trust = graded(device, by="device_time", record=record)
    assert trust.grade == grade
    assert said in trust.reason


@pytest.mark.parametrize("metric", ["latency_ms", "peak_memory_mib", None])
def test_what_cannot_run_is_graded_c_with_the_refusal(metric):
    trust = graded(limits=[Limit("too heavy", metric, "refusal")])
    assert (trust.grade, trust.reason) == ("C", "it cannot run as asked: too heavy")


def own(count=1, metric="latency_ms", **subject):
    """Adapted rows of one setting on the L4: of networks in fp32 by default."""
    run = {"kind": "network", "phase": "inference", "precision": "fp32", "runtime": "eager"}
    return {metric: {Setting("l4", metric=metric, **(subject or run)): count}}


@pytest.mark.parametrize(
    ("rows", "precision", "grade", "said"),
    [
        (20, "fp32", "A", "adapted to your measurements"),
        (3, "fp32", "B", "but 3 times in this configuration (fp32, eager, inference)"),
        (20, "amp", "B", "but never in this configuration (fp32, eager, inference)"),
    ],
)
def test_own_measurements_of_a_setting_grade_it_a_from_as_many_rows_as_in_a_release(
    rows, precision, grade, said
):
    network = {"kind": "network", "phase": "inference", "runtime": "eager"}
    adapted, record = own(rows, precision=precision, **network), counted("rtx-4090", 20)
    others = [Limit("measured on other devices", LATENCY, "transfer")]
    trust = graded("l4", others, adapted=adapted, by="device_time", record=record)
    assert trust.grade == grade
    assert said in trust.reason


def test_rows_that_predictors_are_adapted_to_are_counted_by_setting():
    queries = [network("l4")] * 3
    rows = Measurements(queries, {"latency_ms": np.array([1.0, np.nan, 2.0])})
    assert subjects_measured(rows) == own(2)


def test_own_measurements_of_another_metric_change_no_grade():
    assert graded("l4", adapted=own(20, "power_w")) == graded("l4")


def test_operators_of_a_new_device_are_no_networks_of_it():
    operators = own(kind="linear")
    trust = graded("l4", adapted=operators)
    assert trust.grade == "B"
    assert "no whole networks" in trust.reason
    assert graded(adapted=operators) == graded()


def test_measured_operators_of_one_class_say_nothing_of_another_class():
    relu = Query(Kernel(RELU), CATALOG.get("l4"))
    assert graded(query=relu, adapted=own(kind="elementwise")).grade == "A"
    assert graded(query=relu, adapted=own(kind="softmax")).grade == "B"
    assert graded(query=relu, adapted=own()).grade == "B"


@pytest.mark.parametrize("limits", [[], [Limit("a law of seven others", LATENCY, "transfer")]])
def test_a_scarce_setting_has_the_same_grade_on_every_device(limits):
    """A measured device must not have a lower grade than one that was not measured."""
    how = {"by": "device_time", "record": counted("t4", 19)}
    trusts = [graded(device, limits, **how) for device in ("rtx-4090", "l4")]
    assert [trust.grade for trust in trusts] == ["C", "C"]
    assert "few networks were measured in this configuration" in trusts[0].reason


def test_without_devices_in_the_training_set_the_device_does_not_matter():
    assert graded("l4", by="design_boost").grade == "A"


@pytest.mark.parametrize(("time", "power", "grade"), [("A", "B", "B"), ("C", "B", "C")])
def test_energy_has_the_lower_grade_of_time_and_power(time, power, grade):
    limits = [Limit("from others", POWER, "transfer")]
    limits += [Limit("too large", LATENCY)] if time == "C" else []
    estimates = {"latency_ms": CALIBRATED, "power_w": CALIBRATED, "energy_j": RANGE}
    evidence = Evidence(RECORD, dict.fromkeys(("latency_ms", "power_w"), "network_latency"))
    trust = trust_in("energy_j", estimates, network("rtx-4090"), limits, evidence)
    assert power == "B"
    assert trust.grade == grade
    assert ("of the time" in trust.reason) == (grade == "C")


def test_a_program_that_was_not_measured_is_graded_by_its_limits_alone():
    new = Limit("not measured with co-runners", severity="transfer")
    assert [trust_by(limits).grade for limits in ([], [new], [new, Limit("too far")])] == [
        "A",
        "B",
        "C",
    ]


def test_a_feature_outside_its_range_is_named_with_its_figures():
    outside = Limit("", None, "outside", "cpu_user_share", 1.0, 0.0, 0.5)
    reason = "extrapolated: cpu_user_share is 1; the training set has 0 to 0.5"
    assert trust_by([outside]).reason == reason
