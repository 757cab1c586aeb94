"""Evaluation: folds pooled, seeds averaged, seen rows left out, shots never scored."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.baselines.constant import Constant
from forerun.training.evaluation import evaluate as module
from forerun.training.evaluation.evaluate import evaluate, run_protocols
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

RELU = Operator("elementwise", "relu", ((4096, 4096),), ((4096, 4096),))
CATALOG = DeviceCatalog.load()


def measured(values, device="a10") -> Measurements:
    queries = [Query(Kernel(RELU), CATALOG.get(device))] * len(values)
    names = np.array([device] * len(values))
    return Measurements(queries, {"latency_ms": np.array(values, float)}, {"device": names})


@dataclass(frozen=True)
class Toy(DatasetProtocols):
    """Two folds trained on 1 ms and 2 ms and evaluated on 2 ms; one unseen device."""

    dataset = "toy"

    def predictor(self, seed=0):
        return Constant()

    def training_rows(self, bundle, catalog):
        return measured([1.0, 2.0])

    def folds(self, bundle, catalog) -> Iterator[Fold]:
        for train_ms in (1.0, 2.0):
            task = Task("folds/x", "latency_ms", measured([2.0]), published={"them": np.ones(1)})
            yield Fold("folds", measured([train_ms]), [task])

    def evaluation_tasks(self, bundle, catalog, seen):
        rows = [("a10", [1.0]), ("t4", [4.0] * 10)]
        for device, values in rows:
            if device not in seen.get("device", ()):
                yield Task("unseen_device/x", "latency_ms", measured(values, device), device)


@pytest.fixture
def toy(monkeypatch, tmp_path) -> Bundle:
    monkeypatch.setattr(module, "protocols_of_dataset", lambda name: Toy())
    return Bundle.write(tmp_path / "toy", "toy", {"rows": pd.DataFrame({"x": [1.0]})})


def run(toy, record=None, **options):
    current = LoadedPredictor(Constant({"latency_ms": 2.0}), "v1", "2026-01-01", "")
    return evaluate(
        "toy", current=current, record=record or TrainingRecord(), data_dir=toy.folder, **options
    )


ALONE = {"predictors": ["constant"]}


def test_folds_are_pooled_and_have_baselines(toy):
    record = TrainingRecord({"toy": toy.digest})
    result = run(toy, record, **ALONE)
    (task,) = result["tasks"]
    assert result["predictor"] is None
    assert task["n"] == 2
    assert task["mape"] == pytest.approx(25.0)  # 1 ms for 2 ms, and 2 ms for 2 ms
    assert task["baselines"]["published_them"] == pytest.approx(50.0)
    assert {"roofline", "constant"} <= set(task["baselines"])


def test_every_seed_is_a_fit_and_the_standard_error_is_theirs(toy):
    result = run(toy, TrainingRecord({"toy": toy.digest}), seeds=3, **ALONE)
    (task,) = result["tasks"]
    assert task["n"] == 2
    assert task["mape_standard_error"] == pytest.approx(0.0)


def test_nothing_is_fitted_on_a_dataset_that_trains_no_predictor(toy, monkeypatch):
    monkeypatch.setattr(Toy, "zero_shot", True)
    result = run(toy, TrainingRecord({"toy": toy.digest}))
    assert result["predictor"] == "v1"
    assert result["fitted_on"] is None
    assert {task["task"] for task in result["tasks"]} == {"unseen_device/x"}


def test_on_an_unknown_folder_the_predictor_in_use_is_evaluated(toy):
    result = run(toy)
    assert result["fitted_on"] is None
    assert result["predictor"] == "v1"
    errors = {task["device"]: task["mape"] for task in result["tasks"]}
    assert errors == {"a10": pytest.approx(100.0), "t4": pytest.approx(50.0)}


def test_training_rows_of_the_current_predictor_are_left_out(toy):
    record = TrainingRecord(keys={"toy": {"device": ["a10"]}})
    assert [task["device"] for task in run(toy, record)["tasks"]] == ["t4"]


def test_shots_adapt_and_are_not_scored(toy):
    record = TrainingRecord(keys={"toy": {"device": ["a10"]}})
    (task,) = run(toy, record, shots=4, seeds=2)["tasks"]
    assert task["n"] == 6
    assert task["mape"] == pytest.approx(0.0)


def test_only_the_protocols_asked_for_are_run(toy):
    assert list(run_protocols(Toy(), toy, protocols=["other"])) == []


def test_a_protocol_that_there_is_not_is_refused_with_the_names_of_those_there_are(toy):
    record = TrainingRecord({"toy": toy.digest})
    assert run(toy, record, protocols=["folds"], **ALONE)["tasks"]
    with pytest.raises(InputError, match=r"No protocol 'nope' in toy; there are folds\."):
        run(toy, record, protocols=["folds", "nope"])


def test_a_record_survives_its_file(tmp_path, toy):
    record = TrainingRecord().with_rows(toy, measured([1.0]))
    record.write(tmp_path)
    again = TrainingRecord.read(tmp_path)
    assert again.knows(toy)
    assert again.seen("toy") == {"device": ["a10"]}
    assert again == record
    assert TrainingRecord.read(tmp_path / "nowhere").seen("toy") == {}
