"""Recommended layouts against the fastest measured ones."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.training.reports.training_plans import settings
from tests.models.llm_training.test_step_time import made_up_rows


def rows(slower: float) -> Measurements:
    """Made-up steps, of which those with pipelines take so many times as long."""
    made = made_up_rows()
    pipelines = [query.llm_training.layout.pipeline > 1 for query in made.queries]
    times = made.column("latency_ms") * np.where(pipelines, slower, 1.0)
    groups = {**made.groups, "model": made.group("family"), "config": made.group("config_key")}
    return replace(made, values={"latency_ms": times}, groups=groups)


def measured(slower: float) -> list[tuple[str, int, int, float, float]]:
    """The settings of made-up steps, each configuration of its own release."""
    made = rows(slower)
    return list(settings(made, {name: frozenset({name}) for name in made.group("config")}))


def test_a_setting_needs_two_layouts_of_one_model_device_and_framework() -> None:
    """Three models on two devices in two frameworks, each with two layouts."""
    found = measured(1.0)
    assert len(found) == 12
    assert {(layouts, releases) for _, layouts, releases, _, _ in found} == {(2, 2)}
    assert all(0.0 <= place <= 1.0 for *_, place in found if not np.isnan(place))


def test_a_recommended_layout_is_compared_by_its_measured_time() -> None:
    """Pipelines that are measured much faster than predicted are not recommended, so that what is
    recommended is slower than they are by that much.
    """
    before = {name: ratio for name, _, _, ratio, _ in measured(1.0)}
    after = {name: ratio for name, _, _, ratio, _ in measured(0.25)}
    megatron = [name for name in after if "megatron" in name]
    assert len(megatron) == 6
    assert all(ratio == pytest.approx(1.0, abs=0.2) for ratio in before.values())
    assert max(after[name] for name in megatron) > 2.0
