"""Protocols of deepbench: a GPU or an architecture held out, and a folder of one new GPU."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.deepbench import TABLES, DeepBench
from forerun.data.device import DeviceCatalog
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.baselines.roofline import Roofline
from forerun.models.catalog import PREDICTORS
from forerun.models.router import Router
from forerun.training.evaluation.evaluate import evaluate
from forerun.training.protocols.networks.deepbench import (
    CONVOLUTIONS,
    DeepBenchProtocols,
    Fp32Convolutions,
    kernel_measurements,
)
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


@pytest.fixture
def bundle(tmp_path):
    tables = DeepBench().tidy(tiny_upstream("deepbench", tmp_path / "upstream"))
    return Bundle.write(tmp_path / "b", "deepbench", tables, as_csv=TABLES)


@pytest.mark.slow
def test_no_row_of_the_held_out_gpu_trains(bundle):
    folds = [
        e for e in DeepBenchProtocols().folds(bundle, CATALOG) if e.protocol == "unseen_device"
    ]
    assert len(folds) == 3
    for fold in folds:
        trained = {query.device.name for query in fold.train.queries}
        held_out = {query.device.name for task in fold.tasks for query in task.held_out.queries}
        assert len(held_out) == 1
        assert not trained & held_out


def test_an_architecture_is_held_out_whole(bundle):
    folds = {
        fold.tasks[0].held_out.groups["generation"][0]: fold
        for fold in DeepBenchProtocols().folds(bundle, CATALOG)
        if fold.protocol == "unseen_generation"
    }
    maxwell = folds["maxwell"]
    assert {task.device for task in maxwell.tasks} == {"gtx-titan-x", "tesla-m40"}
    assert {query.device.name for query in maxwell.train.queries} == {"v100-sxm2-16gb"}


def test_tasks_are_one_class_in_one_precision_on_one_device(bundle):
    for fold in DeepBenchProtocols().folds(bundle, CATALOG):
        for task in fold.tasks:
            assert len(set(task.held_out.groups["kernel_class"])) == 1
            assert len({query.run.precision for query in task.held_out.queries}) == 1
            assert set(task.held_out.groups["device"]) == {task.device}


def test_recurrent_layers_are_held_out_and_do_not_train(bundle):
    for fold in DeepBenchProtocols().folds(bundle, CATALOG):
        assert {query.run.operator.kind for query in fold.train.queries} <= {
            *("linear", "conv", "conv_transpose")
        }
        assert any("recurrent" in task.name for task in fold.tasks)


def test_times_are_those_of_the_pass_asked(bundle):
    rows = kernel_measurements(bundle, CATALOG)
    backward = rows.groups["kernel_class"] == "conv_backward_input"
    assert {q.run.operator.kind for q in rows.take(backward).queries} == {"conv_transpose"}
    expected = bundle.table("conv")["bwd_input_ms"].dropna()
    np.testing.assert_allclose(np.sort(rows.values["latency_ms"][backward]), np.sort(expected))


def test_names_and_devices_are_keys_and_no_attributes(bundle):
    rows = kernel_measurements(bundle, CATALOG)
    assert set(rows.groups) == {"device", "generation", "kernel_class"}
    attributes = {name for query in rows.queries for name in query.run.operator.attributes}
    sizes = {"kernel", "stride", "padding", "groups"}
    assert attributes == {"transpose_a", "transpose_b", *sizes}


def test_on_a_folder_of_new_gpus_the_predictor_in_use_is_evaluated(bundle, tmp_path):
    current = LoadedPredictor(Router((Roofline(),)), "1", "2000-01-01", "")
    found = evaluate("deepbench", current=current, record=TrainingRecord(), data_dir=bundle.folder)
    names = {row["task"].partition("/")[0] for row in found["tasks"]}
    assert names == {"unseen_device"}
    assert sum(row["n"] for row in found["tasks"]) == len(kernel_measurements(bundle, CATALOG))


def test_training_devices_are_left_out_of_a_folder(bundle):
    seen = {"device": ["v100-sxm2-16gb", "tesla-m40"]}
    tasks = list(DeepBenchProtocols().evaluation_tasks(bundle, CATALOG, seen))
    assert {task.device for task in tasks} == {"gtx-titan-x"}


def test_recurrent_layers_never_train_a_predictor(bundle):
    rows = DeepBenchProtocols().training_rows(bundle, CATALOG)
    assert set(rows.groups["kernel_class"]) == {"gemm", *CONVOLUTIONS}


def test_convolutions_train_operators_together_with_neusight():
    assert PREDICTORS["operator_boost"].trained_on == (("neusight", Fp32Convolutions().source),)


def test_only_convolutions_in_fp32_train_the_predictors_in_use(bundle):
    rows = Fp32Convolutions().training_rows(bundle, CATALOG)
    assert set(rows.groups["kernel_class"]) == set(CONVOLUTIONS)
    assert {query.run.precision for query in rows.queries} == {"fp32"}
    every = DeepBenchProtocols().training_rows(bundle, CATALOG)
    assert {query.run.precision for query in every.queries} == {"fp32", "fp16"}
