"""The gate sees a constant of a fitted correction that is off, in a table of another dataset."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.data.errors import SlicesGotWorse
from forerun.models.answers.served_models import InUse
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.networks.host_time import TERMS
from forerun.training.evaluation.cells import cells_of
from forerun.training.evaluation.predictions import predict_task
from forerun.training.protocols.networks.torch_gpu import measured_runs
from forerun.training.protocols.protocol import Task
from forerun.training.release.pipeline import _accepted


@pytest.fixture(scope="module")
def task():
    """Eager networks, which train none of the predictors of time."""
    bundle = Bundle.open(TorchGpu().packaged().folder, "torch_gpu")
    rows = measured_runs(bundle, DeviceCatalog.load())
    eager = (rows.groups["mode"] == "eager") & (rows.groups["phase"] == "inference")
    return Task("eager/inference_latency", "latency_ms", rows.take(eager))


def with_host_constant(factor):
    """The bundled predictors with the time of one operator on the host times a factor."""
    loaded = bundled()
    parts = []
    for part in loaded.predictor.parts:
        if part.name == "network_latency":
            mean = part.host.mean.copy()
            mean[list(TERMS).index("operator")] += np.log(factor)
            part = replace(part, host=replace(part.host, mean=mean))
        parts.append(part)
    return replace(loaded, predictor=replace(loaded.predictor, parts=tuple(parts)))


def evaluation(task, factor):
    answers = WholeAnswers(InUse(with_host_constant(factor)), (task.metric,))
    cells = cells_of([predict_task(task, answers, None, 0, 0)])
    return [{"dataset": "torch_gpu", "tasks": [], "cells": cells}]


def test_a_constant_of_the_host_time_that_is_off_by_a_fifth_is_refused(task):
    before = evaluation(task, 1.0)
    with pytest.raises(SlicesGotWorse, match="torch_gpu eager/inference_latency"):
        _accepted(evaluation(task, 1.2), before, "")
    assert _accepted(evaluation(task, 1.0), before, "") == before
