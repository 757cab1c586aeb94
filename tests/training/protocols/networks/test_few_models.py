"""A few models of an unseen device in both execution modes: none of their rows is held out."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.prediction import Predictions
from forerun.training.evaluation.predictions import median_offset
from forerun.training.protocols.networks.timm_bench import few_models_tasks

T4 = DeviceCatalog.load().get("t4")


def rows(models=12, parts=("eager", "compiled", "eager_nhwc")) -> Measurements:
    relu = Operator("elementwise", "relu", ((64, 64),), ((64, 64),))
    names = [(f"model{m}", f"family{m // 2}", part) for m in range(models) for part in parts]
    model, family, part = (np.array(column) for column in zip(*names, strict=True))
    groups = {"device": np.full(len(names), "t4"), "model": model, "family": family, "part": part}
    values = {"latency_ms": np.arange(1.0, len(names) + 1)}
    return Measurements([Query(Kernel(relu), T4)] * len(names), values, groups)


def test_the_support_set_has_each_model_in_both_modes_and_is_not_held_out():
    tasks = list(few_models_tasks(rows(), models=3, draws=4))
    assert len(tasks) == 4 * 2 * 2
    for task in tasks:
        support = task.support.pool.groups
        assert (len(task.support.pool), task.support.shots) == (6, 6)
        assert sorted(support["part"]) == ["compiled"] * 3 + ["eager"] * 3
        assert not set(support["model"]) & set(task.held_out.groups["model"])
        assert len(set(task.held_out.groups["part"])) == 1
        if "families" in task.name:
            assert not set(support["family"]) & set(task.held_out.groups["family"])


def test_draws_differ_and_come_again():
    once, again = (list(few_models_tasks(rows(), models=3, draws=3)) for _ in range(2))
    chosen = [tuple(sorted(set(t.support.pool.groups["model"]))) for t in once]
    assert chosen == [tuple(sorted(set(t.support.pool.groups["model"]))) for t in again]
    assert len(set(chosen)) > 1


def test_a_device_with_too_few_models_has_no_such_task():
    assert list(few_models_tasks(rows(models=3), models=3)) == []


class Ones:
    def predict(self, queries):
        return Predictions({"latency_ms": np.ones(len(queries))})


def test_the_baseline_is_the_median_of_each_mode():
    measured = rows(models=3)
    answers = median_offset(Ones(), measured, measured, "latency_ms", "part")
    assert answers[:3].tolist() == pytest.approx([4.0, 5.0, 6.0])
