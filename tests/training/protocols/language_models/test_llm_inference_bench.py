"""Protocols of llm_inference_bench: what is held out, support sets, baselines and intervals."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.llm_inference_bench import RESULTS
from forerun.models.llm_serving.static_batch import RATE
from forerun.training.evaluation.predictions import predict_task
from forerun.training.protocols.language_models.static_batches import (
    LlmInferenceBenchProtocols,
)
from tests.training.protocols.language_models.batch_tables import (
    CATALOG,
    FACTORS,
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
    fold = of(folds, "intel-max-1550")
    predictor = PROTOCOLS.predictor().fit(fold.train)
    errors = {}
    for task in fold.tasks:
        found = predict_task(task, predictor, None, 0, 0)
        columns = found.columns
        assert len(columns["measured"]) == len(task.held_out) - task.support.shots
        assert np.isfinite(columns["low"]).all()
        assert (columns["low"] <= columns["predicted"]).all()
        assert (columns["predicted"] <= columns["high"]).all()
        errors[task.name] = np.median(np.abs(columns["predicted"] / columns["measured"] - 1))
    zero, suggested, random = errors.values()
    assert zero > 0.5
    assert max(suggested, random) < 0.12


def test_results_of_the_held_out_accelerator_are_in_no_training_set(folds, tmp_path):
    changed = benchmark_table({**FACTORS, "Nvidia A100 GPU": 0.01})
    others = [*PROTOCOLS.folds(bundle(tmp_path, changed), CATALOG)]
    own, other = of(folds, "a100-sxm-40gb"), of(others, "a100-sxm-40gb")
    assert (own.tasks[0].held_out.values[RATE] > other.tasks[0].held_out.values[RATE]).all()
    chosen, found = [], []
    for fold in (own, other):
        names = fold.train.groups["device"]
        train = fold.train.take((names != "intel-max-1550") & (names != "mi250"))
        predictor = PROTOCOLS.predictor().fit(train)
        queries = fold.tasks[0].held_out.queries
        chosen.append(predictor.suggest(queries, 10))
        found.append(predictor.predict(queries).values[RATE])
    assert chosen[0] == chosen[1]
    np.testing.assert_array_equal(*found)


def test_baselines_adapt_on_the_support_set(folds):
    fold = of(folds, "mi250")
    task = fold.tasks[2]
    for baseline in PROTOCOLS.predictors()[1:]:
        fitted = baseline.fit(fold.train)
        zero = predict_task(fold.tasks[0], fitted, None, 0, 0)
        found = predict_task(task, fitted, None, 0, 0)
        errors = [
            np.median(np.abs(one.columns["predicted"] / one.columns["measured"] - 1))
            for one in (zero, found)
        ]
        assert errors[1] < errors[0]


def test_the_factor_is_the_median_ratio_to_the_closed_form(folds):
    fold = of(folds, "mi250")
    factor = PROTOCOLS.predictors()[1].fit(fold.train).adapt(fold.tasks[0].held_out)
    assert factor.factors["mi250"] == pytest.approx(0.5, rel=0.03)
