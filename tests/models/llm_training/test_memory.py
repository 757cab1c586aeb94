"""Measured memory of training: constants are found again, intervals say what they rest on."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.language_models.training import LlmTraining, TrainingLayout
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.memory import stage_memory
from forerun.models.limit import PEAK_MEMORY
from forerun.models.llm_training.memory import MIB, RESERVED_MEMORY, LlmTrainingMemory
from tests.devices import A100
from tests.features.llm_training.test_step import gpt


def query(layers: int, framework="torchtitan", batch: int = 1) -> Query:
    run = LlmTraining(gpt(layers, 2048, 16), 2048, 8 * batch, 8, framework=framework)
    run = replace(run, layout=TrainingLayout(micro_batch=batch))
    return Query(run, A100, operation=Operation(8))


def measured(factor: float, context: float, frameworks=("torchtitan", "deepspeed")) -> Measurements:
    """Rows of each framework, every second of the device, that follow the law with 2 % noise."""
    queries = [query(n, one) for one in frameworks for n in range(4, 64)]
    plain = LlmTrainingMemory(fragmentation=1.0, context_mib=0.0).predict(queries)
    noise = np.exp(0.02 * np.random.default_rng(0).standard_normal(len(queries)))
    reserved = factor * plain.values[RESERVED_MEMORY] * noise
    of_device = np.arange(len(queries)) % 2 == 0
    values = {
        PEAK_MEMORY: np.where(of_device, reserved + context, np.nan),
        RESERVED_MEMORY: np.where(of_device, np.nan, reserved),
    }
    return Measurements.of(queries, values, {"config": np.arange(len(queries)).astype(str)})


def test_constants_are_found_again() -> None:
    fitted = LlmTrainingMemory().fit(measured(1.10, 4000.0))
    assert fitted.context_mib == pytest.approx(4000.0, rel=0.1)
    for own in fitted.own.values():
        assert own == pytest.approx(1.10, rel=0.02)
    assert 1.05 < fitted.fragmentation < 1.10


def test_intervals_hold_nine_in_ten_and_the_device_holds_more_than_the_allocator() -> None:
    rows = measured(1.08, 3000.0)
    found = LlmTrainingMemory().fit(rows).predict(rows.queries)
    of_device = np.isfinite(rows.values[PEAK_MEMORY])
    for metric, known in ((PEAK_MEMORY, of_device), (RESERVED_MEMORY, ~of_device)):
        value = rows.values[metric][known]
        inside = (found.low[metric][known] <= value) & (value <= found.high[metric][known])
        assert 0.85 <= inside.mean() <= 0.97
    assert (found.values[PEAK_MEMORY] > found.values[RESERVED_MEMORY]).all()
    assert not any(found.limits)


def test_a_framework_without_rows_is_said_and_has_no_coverage() -> None:
    fitted = LlmTrainingMemory().fit(measured(1.08, 3000.0))
    found = fitted.predict([query(8, "maxtext"), query(8)])
    assert [len(own) for own in found.limits] == [1, 0]
    assert "maxtext" in str(found.limits[0][0])
    assert np.isnan(found.row_coverage[PEAK_MEMORY]).tolist() == [True, False]


def test_many_layouts_are_what_each_query_is_and_the_upper_end_is_above() -> None:
    fitted = LlmTrainingMemory().fit(measured(1.08, 3000.0))
    asked = query(8, batch=2)
    best, upper = fitted.upper_mib(asked.llm_training, A100, Layouts.of(asked.llm_training))
    one = fitted.predict([asked])
    assert best[0] == pytest.approx(one.values[PEAK_MEMORY][0])
    assert upper[0] == pytest.approx(one.high[PEAK_MEMORY][0])
    assert upper[0] > best[0]


def test_parts_add_up_to_what_the_device_shows() -> None:
    found = LlmTrainingMemory().predict([query(8)])
    total = sum(found.breakdowns_mib[0].values())
    assert total == pytest.approx(found.values[PEAK_MEMORY][0])


def test_the_lower_end_holds_what_lasts_between_steps() -> None:
    asked = query(32, "maxtext")
    found = LlmTrainingMemory(fragmentation=0.5, context_mib=1.0).predict([asked])
    run = asked.llm_training
    held = stage_memory(run, Layouts.of(run)).model_states[0] / MIB
    assert found.low[PEAK_MEMORY][0] == pytest.approx(held)
    assert held <= found.values[PEAK_MEMORY][0] <= found.high[PEAK_MEMORY][0]
    assert min(found.breakdowns_mib[0].values()) >= 0.0


def test_it_is_stored_and_read_again(tmp_path) -> None:
    fitted = LlmTrainingMemory().fit(measured(1.08, 3000.0))
    fitted.save(tmp_path)
    assert LlmTrainingMemory.load(tmp_path) == fitted
