"""Measured values are counted by device, and what was not counted is not called zero."""

from forerun.models.artifact.training_record import Setting, TrainingRecord
from forerun.service.http.pages.coverage import Choice, gaps, step
from forerun.service.http.pages.devices import (
    Measured,
    measured,
    pivot,
    values_by_device,
)

RECORD = TrainingRecord(
    keys={"counted": {"device": ["l4"]}, "older": {"device": ["t4", "l4"]}, "suites": {}},
    counts={
        "counted": {
            Setting("l4", "network", "latency_ms", "inference", "amp", "eager"): 7,
            Setting("l4", "network", "power_w", "inference", "amp", "eager"): 2,
            Setting("t4", "network", "latency_ms", "training", "fp32", "compiled"): 5,
            Setting("t4", "benchmark", "score"): 1,
        }
    },
)
ROWS = measured(RECORD)


def test_a_dataset_that_was_not_counted_is_present_without_a_number():
    assert Measured("t4", "older") in ROWS
    assert not [row for row in ROWS if row.dataset == "counted" and row.values is None]
    assert values_by_device(ROWS) == {"l4": 9, "t4": 6}


def test_a_map_adds_up_and_begins_with_the_most():
    found = pivot(ROWS, "metric")
    assert found.columns == ["latency_ms", "power_w", "score"]
    assert found.devices == ["l4", "t4"]
    assert found.cells == {
        ("l4", "latency_ms"): 7,
        ("l4", "power_w"): 2,
        ("t4", "latency_ms"): 5,
        ("t4", "score"): 1,
    }


def test_presence_alone_is_no_number_and_does_not_hide_one():
    alone = pivot(ROWS, "dataset").cells
    assert alone["l4", "older"] is None
    assert alone["l4", "counted"] == 9
    both = [Measured("l4", "a"), Measured("l4", "a", values=3), Measured("l4", "a")]
    assert pivot(both, "dataset").cells == {("l4", "a"): 3}


def test_rows_without_the_field_are_left_out():
    assert ("t4", "") not in pivot(ROWS, "phase").cells
    assert pivot(ROWS, "phase").columns == ["inference", "training"]


def test_a_choice_holds_for_every_field_that_is_chosen():
    chosen = [row for row in ROWS if Choice(kind="network", precision="amp").fits(row)]
    assert [row.metric for row in chosen] == ["latency_ms", "power_w"]
    assert all(map(Choice().fits, ROWS))


def test_each_power_of_ten_is_a_step():
    assert [step(n) for n in (None, 1, 9, 10, 99_999, 100_000, 10**9)] == [1, 1, 1, 2, 5, 6, 6]


def test_gaps_name_what_no_network_was_measured_in():
    found = gaps(ROWS)
    assert "phase" not in found
    assert "latency_ms" not in found["metric"] and "utilisation" in found["metric"]
    assert "amp" not in found["precision"] and "int8" in found["precision"]
    assert "eager" not in found["runtime"] and "tensorrt" in found["runtime"]
