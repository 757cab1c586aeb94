"""Protocols of llm_inference_bench: what is held out, support sets, baselines and intervals."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.llm_inference_bench import RESULTS
from forerun.models.llm_serving.latency import LlmLatency
from forerun.training.evaluation.predictions import predict_task
from forerun.training.protocols.language_models.static_batches import (
    RATE,
    LlmInferenceBenchProtocols,
)
from tests.training.protocols.language_models.batch_tables import (
    CATALOG,
    benchmark_table,
)

PROTOCOLS = LlmInferenceBenchProtocols()


def bundle(folder, frame):
    return Bundle.write(folder / "b", PROTOCOLS.dataset, {RESULTS: frame})


@pytest.fixture(scope="module")
def folds(tmp_path_factory):
    frame = benchmark_table()
    other = frame[frame["hardware"] == "Intel PVC GPU"].assign(hardware="Intel Max 1550")
    both = pd.concat([frame, other.iloc[:4]], ignore_index=True)
    return list(PROTOCOLS.folds(bundle(tmp_path_factory.mktemp("bench"), both), CATALOG))


def of(folds, device):
    return next(fold for fold in folds if fold.tasks[0].device == device)


def test_ten_rows_are_chosen_by_the_predictor_or_by_lot(folds):
    zero, suggested, random = of(folds, "mi250").tasks
    assert (zero.support.shots, suggested.support.shots, random.support.shots) == (0, 10, 10)
    assert (suggested.support.suggested, random.support.suggested) == (True, False)
    assert zero.name == f"unseen_device/{RATE}"


def test_support_rows_are_not_scored_and_reduce_the_error(folds):
    fold = of(folds, "a100-sxm-40gb")
    errors = {}
    for task in fold.tasks:
        found = predict_task(task, LlmLatency(), None, 0, 0)
        columns = found.columns
        assert len(columns["measured"]) == len(task.held_out) - task.support.shots
        errors[task.name] = np.median(np.abs(columns["predicted"] / columns["measured"] - 1))
    zero, suggested, random = errors.values()
    assert zero > 0.2
    assert max(suggested, random) < 0.08
