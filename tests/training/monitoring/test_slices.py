"""Slices: which exist, what changed in each, and which one raises the alarm."""

import numpy as np
import pytest

from forerun.training.monitoring.slices import (
    FEWEST_ROWS,
    LIVE_ROWS,
    ObservedRows,
    epochs_of,
    plainest,
    slice_reports,
)
from tests.training.monitoring.streams import Simulated

ROWS, CHANGE = 1_200, 800


def rows(
    slower=lambda kind, precision: False, epochs=None, count=ROWS, factor=1.15
) -> ObservedRows:
    """Networks in fp32 and fp16 and operators in fp32, of which some become slower."""
    values, workloads = Simulated(count, workloads=24).drawn(5)
    kinds = np.where(workloads < 16, "network", "kernel")
    precisions = np.where(workloads < 8, "fp16", "fp32")
    for row in range(CHANGE, count):
        if slower(kinds[row], precisions[row]):
            values[row] += np.log(factor)
    inside = (np.abs(values) < 0.2).astype(np.float64)
    epochs = np.zeros(count, dtype=np.int64) if epochs is None else epochs
    return ObservedRows(values, inside, workloads, epochs, {"kind": kinds, "precision": precisions})


def alarms(observed):
    return [dict(report.slice) for report in plainest(observed, slice_reports(observed))]


def test_every_slice_with_enough_rows_is_reported_once():
    reports = slice_reports(rows())
    assert [dict(report.slice) for report in reports] == [
        {},
        {"kind": "kernel"},
        {"kind": "network"},
        {"precision": "fp16"},
        {"precision": "fp32"},
        {"kind": "network", "precision": "fp32"},
    ], "operators are all in fp32, and fp16 is of networks alone"
    assert len(reports[0].positions) == ROWS
    assert all(report.alarm is None and report.changes == () for report in reports)
    few = rows(count=FEWEST_ROWS - 1)
    assert slice_reports(few) == []
    assert len(slice_reports(rows(count=FEWEST_ROWS))) == 1


def test_a_slower_device_raises_one_alarm_for_the_whole_device():
    observed = rows(lambda kind, precision: True)
    reports = slice_reports(observed)
    assert sum(report.alarm is not None for report in reports) == len(reports)
    assert alarms(observed) == [{}]
    assert abs(reports[0].changes[0].start - CHANGE) <= 20


@pytest.mark.parametrize(
    ("slower", "said"),
    [
        (lambda kind, precision: precision == "fp16", {"precision": "fp16"}),
        (lambda kind, precision: kind == "network", {"kind": "network"}),
        (lambda kind, precision: kind == "kernel", {"kind": "kernel"}),
    ],
)
def test_a_part_that_becomes_slower_raises_an_alarm_for_that_part(slower, said):
    observed = rows(slower, factor=1.3)
    assert alarms(observed) == [said]
    (report,) = [r for r in slice_reports(observed) if r.slice == said]
    assert abs(report.alarm.start - CHANGE) <= 30, "positions are those of the device"
    assert report.alarm.shift == pytest.approx(np.log(1.3), abs=0.05)


def test_an_alarm_ends_when_the_level_is_back():
    observed = rows(lambda kind, precision: True, count=1_600)
    observed.log_ratios[1_200:] -= np.log(1.15)
    report = slice_reports(observed)[0]
    assert len(report.changes) == 2
    assert report.alarm is None
    assert alarms(observed) == []


def test_an_alarm_ends_when_the_answers_change_and_its_change_stays_on_record():
    epochs = (np.arange(ROWS) >= 1_000).astype(np.int64)
    observed = rows(lambda kind, precision: True, epochs)
    observed.log_ratios[1_000:] -= np.log(1.15)
    report = slice_reports(observed)[0]
    assert len(report.changes) == 1
    assert report.alarm is None
    assert report.live.rows == 200, "live errors are those of the answers of now"


def test_answers_of_a_trial_version_do_not_end_an_alarm():
    on_trial = (np.arange(ROWS) % 10 == 0) & (np.arange(ROWS) >= 900)
    observed = rows(lambda kind, precision: True, on_trial.astype(np.int64))
    report = slice_reports(observed)[0]
    assert report.alarm is not None
    assert report.live.rows == min(LIVE_ROWS, ROWS - int(on_trial.sum()))


def test_new_answers_are_not_a_level_change_however_different_they_are():
    epochs = (np.arange(ROWS) >= 600).astype(np.int64)
    observed = rows(epochs=epochs)
    observed.log_ratios[600:] += 0.4
    assert all(report.changes == () for report in slice_reports(observed))


def test_live_errors_use_the_newest_rows():
    observed = rows(count=LIVE_ROWS + 200)
    observed.log_ratios[:] = 0.0
    observed.log_ratios[:200] = 1.0
    live = slice_reports(observed)[0].live
    assert (live.rows, live.mape) == (LIVE_ROWS, 0.0)


def epochs(*given):
    versions, questions, answers = zip(*given, strict=True)
    return epochs_of(versions, questions, np.array(answers)).tolist()


def test_a_new_version_begins_a_generation_unless_known_questions_have_the_same_answers():
    assert epochs(("a", "x", 1.0), ("b", "x", 2.0), ("b", "y", 1.0)) == [0, 1, 1]
    assert epochs(("a", "x", 1.0), ("b", "x", 1.001), ("b", "y", 1.0)) == [0, 0, 0]
    assert epochs(("a", "x", 1.0), ("b", "y", 1.0)) == [0, 1], "nothing to compare"
    both = epochs(("a", "x", 1.0), ("a", "y", 1.0), ("b", "x", 1.0), ("b", "y", 2.0))
    assert both == [0, 0, 1, 1], "one answer that changed is enough"


def test_two_alternating_versions_are_two_generations():
    assert epochs(("a", "x", 1.0), ("b", "x", 2.0), ("a", "x", 1.0)) == [0, 1, 0]
