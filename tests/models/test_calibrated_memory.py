"""Ranges of memory calibrated on groups of published set-ups."""

import numpy as np
import pytest
from tests.models.test_memory import ask

from forerun.data.measurements import Measurements
from forerun.data.workload import TrainingSetup
from forerun.models.calibrated_memory import CalibratedMemory, group_width
from forerun.models.contract import PredictorContract
from forerun.models.memory import ALLOCATED, PEAK, Memory


def published(spread=0.1):
    """Twelve runs of four tables, each phase, off by up to so much either way."""
    queries = [ask(b, phase=p) for p in ("training", "inference") for b in (1, 2, 4, 8)] * 3
    answers = Memory().predict(queries).values[ALLOCATED]
    off = np.exp(spread * np.linspace(-1.0, 1.0, len(queries)))
    parts = np.array([f"table {i % 4}" for i in range(len(queries))])
    return Measurements(queries, {ALLOCATED: answers * off}, {"part": parts})


class TestCalibratedMemoryContract(PredictorContract):
    def make(self):
        return CalibratedMemory().fit(published())

    def queries(self):
        return [ask(), ask(16, "fp16"), ask(2, phase="training")]


def test_estimates_are_those_of_memory_and_ranges_hold_what_was_published():
    rows = published()
    answers = CalibratedMemory().fit(rows).predict(rows.queries)
    np.testing.assert_array_equal(
        answers.values[ALLOCATED], Memory().predict(rows.queries).values[ALLOCATED]
    )
    measured = rows.values[ALLOCATED]
    held = (answers.low[ALLOCATED] <= measured) & (measured <= answers.high[ALLOCATED])
    assert held.all()
    assert answers.coverage == 0.9


def test_two_tables_are_too_few_to_calibrate_on():
    rows = published()
    few = rows.take(np.isin(rows.groups["part"], ["table 0", "table 1"]))
    assert CalibratedMemory().fit(few).widths == {}


def test_rows_of_other_metrics_count_by_their_own():
    rows = published()
    peaks = Memory().predict(rows.queries).values[PEAK]
    both = Measurements(rows.queries, {PEAK: 2.0 * peaks}, rows.groups)
    assert CalibratedMemory().fit(both).widths["one"] == pytest.approx(np.log(2.0))


def test_a_table_above_widens_the_range_below_too():
    rows = published(spread=0.0)
    high = Measurements(rows.queries, {ALLOCATED: 1.5 * rows.values[ALLOCATED]}, rows.groups)
    answers = CalibratedMemory().fit(high).predict(rows.queries)
    np.testing.assert_allclose(answers.low[ALLOCATED] * 1.5, answers.values[ALLOCATED])


def test_runs_on_several_devices_do_not_widen_the_ranges_of_one():
    rows = published(spread=0.0)
    divided = [
        ask(b, phase="training", setup=TrainingSetup("sgd", data_parallel=8)) for b in (1, 2)
    ]
    off = 5.0 * Memory().predict(divided).values[ALLOCATED]
    parts = {"part": np.array(["table 5", "table 5"])}
    fitted = CalibratedMemory().fit(rows + Measurements(divided, {ALLOCATED: off}, parts))
    assert fitted.widths["one"] == pytest.approx(0.0)
    assert fitted.widths["several"] == pytest.approx(np.log(5.0))
    answers = fitted.predict([*divided, *rows.queries])
    assert answers.high[ALLOCATED][0] > 4.0 * answers.values[ALLOCATED][0]
    np.testing.assert_allclose(answers.high[ALLOCATED][2:], answers.values[ALLOCATED][2:])


def test_a_table_with_many_rows_weighs_no_more_than_one_with_few():
    residuals = np.concatenate([np.zeros(1000), np.full(5, 0.4), np.full(5, 0.5)])
    groups = np.array(["a"] * 1000 + ["b"] * 5 + ["c"] * 5)
    assert group_width(residuals, groups) == pytest.approx(0.5)


def test_with_few_tables_the_range_holds_all_of_them():
    assert group_width(np.array([0.3, 0.0, 0.2]), np.array(["a", "b", "c"])) == 0.3


def test_with_many_tables_the_range_leaves_out_the_rarest():
    residuals = np.linspace(0.0, 1.0, 201)
    assert 0.88 < group_width(residuals, np.arange(201).astype(str)) < 0.93
