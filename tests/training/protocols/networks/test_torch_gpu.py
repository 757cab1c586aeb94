"""torch_gpu: tasks by mode and GPU without training rows, and folds that hold out a GPU."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import NO_HOST
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_gpu import gpu_measurements
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import PREDICTORS
from forerun.training.evaluation.predictions import predict_task
from forerun.training.protocols import TRAINING_PARTS
from forerun.training.protocols.networks import torch_gpu
from forerun.training.protocols.networks.published_networks import PublishedNetworksProtocols
from forerun.training.protocols.networks.torch_gpu import (
    RecordedOperators,
    TorchGpuProtocols,
    trains,
)
from tests.contracts.tiny_torch_gpu import GPUS, gpu_graphs, gpu_rows

CATALOG = DeviceCatalog.load()


@pytest.fixture
def bundle(tmp_path):
    tables = {"runs": gpu_rows(), "graphs": gpu_graphs()}
    return Bundle.write(tmp_path / "gpus", "torch_gpu", tables)


@pytest.fixture
def tasks(bundle):
    found = TorchGpuProtocols().evaluation_tasks(bundle, CATALOG, {})
    return {(task.name, task.device): task for task in found}


def test_each_mode_phase_and_metric_is_a_task_of_each_gpu(tasks):
    assert {device for _, device in tasks} == set(GPUS)
    memory = ("allocated_memory", "reserved_memory", "peak_memory")
    assert {name for name, _ in tasks} == {
        *("operators/latency", "operators/launched_latency", "recorded/inference_latency"),
        *(f"eager/{phase}_{what}" for phase in ("inference", "training")
          for what in ("latency", "power", *memory)),
    }  # fmt: skip
    assert all(len(task.held_out) == 1 for task in tasks.values())


def test_baselines_are_medians_of_other_gpus_and_a_share_of_the_design_power(tasks):
    latency = tasks["eager/inference_latency", GPUS[0]]
    np.testing.assert_allclose(latency.baselines["other_devices"], [1.0])
    power = tasks["eager/training_power", GPUS[1]]
    np.testing.assert_allclose(power.baselines["other_devices"], [350.0])
    np.testing.assert_allclose(power.baselines["constant_share"], [630.0])


def test_a_folder_of_one_gpu_has_no_baseline_of_others(bundle, tmp_path):
    runs = bundle.table("runs").query("device == @GPUS[0]").reset_index(drop=True)
    alone = Bundle.write(
        tmp_path / "alone", "torch_gpu", {"runs": runs, "graphs": bundle.table("graphs")}
    )
    tasks = list(TorchGpuProtocols().evaluation_tasks(alone, CATALOG, {}))
    assert tasks
    assert not any("other_devices" in task.baselines for task in tasks)


def test_rows_without_a_measurement_are_counted(bundle):
    left_out = TorchGpuProtocols().left_out(bundle, CATALOG, {})
    assert left_out == {"ran out of memory, failed or was throttled": 2}


def test_recorded_networks_are_scored_without_the_host(tasks):
    predictor = bundled().predictor
    recorded = tasks["recorded/inference_latency", GPUS[1]]
    eager = tasks["eager/inference_latency", GPUS[1]]
    columns = [predict_task(task, predictor, None, 0, 0).columns for task in (recorded, eager)]
    host_ms = predictor.predict(eager.held_out.queries).breakdowns_ms[0]["host"]
    assert host_ms > 0.0
    assert columns[0]["predicted"] == pytest.approx(columns[1]["predicted"] - host_ms)
    assert np.isnan(columns[0]["low"]).all()
    assert np.isfinite(columns[1]["low"]).all()


def test_recorded_runs_and_the_power_of_eager_ones_train_one_predictor_each():
    uses = {
        name: [s for sources in entry.trained_on for s in sources if s.startswith("torch_gpu")]
        for name, entry in PREDICTORS.items()
    }
    assert {name: found for name, found in uses.items() if found} == {
        "device_time": ["torch_gpu/recorded", "torch_gpu/operators"],
        "operator_power": ["torch_gpu/power"],
    }
    parts = {cls.part for cls in TRAINING_PARTS if cls.dataset == "torch_gpu"}
    assert parts == {"recorded", "operators", "power"}


@pytest.fixture(scope="module")
def packaged():
    return Bundle.open(TorchGpu().packaged().folder, "torch_gpu")


@pytest.fixture(scope="module")
def recorded(packaged):
    return TorchGpuProtocols().training_rows(packaged, CATALOG)


@pytest.fixture(scope="module")
def operators(packaged):
    return RecordedOperators().training_rows(packaged, CATALOG)


def test_training_rows_are_recorded_and_mean_what_their_query_means(recorded):
    found = recorded
    assert set(found.groups["mode"]) == {"recorded"}
    assert set(found.groups["host"]) == {NO_HOST}
    assert not any(model.startswith("lstm") for model in found.groups["model"])
    models, precision = found.groups["model"], found.groups["precision"]
    strict = models[(precision == "fp32") & (found.groups["fp32_convolutions"] == "strict")]
    default = models[(precision == "fp32") & (found.groups["fp32_convolutions"] == "tf32")]
    assert len(strict)
    assert not any(name.startswith(("resnet", "mobilenet", "convnext")) for name in strict)
    assert {"resnet18", "convnext-tiny"} <= set(default)
    assert set(found.groups["phase"]) == {"inference", "training"}
    assert len(found) > 500


def test_training_rows_of_operators_mean_what_their_query_means(operators):
    """A query in fp32 allows TF32 in convolutions, where the first rows did not."""
    found = operators
    assert {query.run.kind for query in found.queries} == {"kernel"}
    assert np.isfinite(found.values["latency_ms"]).all()
    conv = np.array([query.run.operator.kind == "conv" for query in found.queries])
    fp32 = found.groups["precision"] == "fp32"
    assert (conv & ~fp32).any()
    assert "strict" not in found.groups["fp32_convolutions"][conv & fp32]
    assert (~conv & fp32).any()


@pytest.mark.slow
def test_rows_of_the_training_set_are_not_evaluated(packaged, recorded):
    protocols = TorchGpuProtocols()
    seen = {key: recorded.groups[key].tolist() for key in ("device", "model")}
    tasks = list(protocols.evaluation_tasks(packaged, CATALOG, seen))
    held_out = [task.held_out for task in tasks if task.name.startswith("recorded/")]
    assert held_out
    assert not any(trains(rows).any() for rows in held_out)
    left_out = protocols.left_out(packaged, CATALOG, seen)
    assert left_out["the training set has this recorded network on this GPU"] == len(recorded)
    powered = {q.network.graph.digest for t in tasks if t.name.startswith("eager/")
               and t.metric == "power_w" for q in t.held_out.queries}  # fmt: skip
    assert not powered & {query.network.graph.digest for query in recorded.queries}


def test_no_row_that_trained_the_released_predictors_is_evaluated(packaged):
    protocols = TorchGpuProtocols()
    tasks = list(protocols.evaluation_tasks(packaged, CATALOG, bundled().record.seen("torch_gpu")))
    for task in tasks:
        assert not trains(task.held_out).any()
        assert not (task.metric == "power_w" and task.name.startswith("eager/"))
    assert {task.name for task in tasks if "recorded" in task.name}


@pytest.fixture(scope="module")
def folds(packaged, recorded):
    """Folds with rows of another dataset, which are the recorded networks on another GPU."""
    names = np.full(len(recorded), "another")
    other = replace(recorded, groups={**recorded.groups, "device": names})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_gpu, "_other_training_rows", lambda predictor, catalog: other)
        return list(TorchGpuProtocols().folds(packaged, CATALOG))


def test_folds_hold_out_what_they_are_named_after_on_both_sides(folds):
    """Rows of other datasets of a held-out family do not train either."""
    assert {fold.protocol for fold in folds} == {*TorchGpuProtocols.fitted_protocols}
    for fold in folds:
        (key,) = TorchGpuProtocols.held_out_by[fold.protocol]
        for task in fold.tasks:
            assert not set(task.held_out.groups[key]) & set(fold.train.groups[key])
    metrics = {task.metric for fold in folds for task in fold.tasks}
    assert metrics == {"latency_ms", "power_w"}


@pytest.mark.slow
def test_folds_hold_out_every_training_row_once(folds, recorded, operators):
    for name, rows in {
        "unseen_family/recorded_latency": len(recorded),
        "unseen_shape/operators_latency": len(operators),
        "unseen_architecture/operators_latency": len(operators),
        "unseen_architecture/recorded_latency": len(recorded),
        "operators_only/recorded_latency": len(recorded),
    }.items():
        held = [task.held_out for fold in folds for task in fold.tasks if task.name == name]
        assert sum(map(len, held)) == rows


def test_operators_only_adapts_to_operators_of_the_gpu_and_to_nothing_else_of_it(folds):
    (fold,) = (fold for fold in folds if fold.protocol == "operators_only")
    assert {task.name.partition("/")[2] for task in fold.tasks} >= {"recorded_latency"}
    for task in fold.tasks:
        assert {query.workload.kind for query in task.pool.queries} == {"kernel"}
        assert {query.device.name for query in task.pool.queries} == {task.device}
        assert {query.workload.kind for query in task.held_out.queries} == {"network"}
        assert task.shots == len(task.pool) > 0
        assert list(task.pool.values) == ["latency_ms"]


def test_eager_networks_of_held_out_families_mean_what_their_query_means(folds):
    """No query says that convolutions may not use TF32."""
    held = [task.held_out for fold in folds for task in fold.tasks if "/eager_" in task.name]
    latencies = [rows for rows in held if "latency_ms" in rows.values]
    assert latencies
    for rows in latencies:
        strict = (rows.groups["fp32_convolutions"] == "strict") & (
            rows.groups["precision"] == "fp32"
        )
        for row in np.flatnonzero(strict).tolist():
            kinds = [op.kind for op in rows.queries[row].network.graph.operators]
            assert kinds.count("conv") <= 1


@pytest.mark.parametrize(
    ("metric", "name"), [("latency_ms", "network_latency"), ("power_w", "operator_power")]
)
def test_each_fold_fits_the_predictor_that_its_rows_train(metric, name):
    able = [p for p in TorchGpuProtocols().predictors() if metric in p.metrics]
    assert able[0].name == name


def test_no_row_occurs_among_those_of_published_networks(packaged):
    """Some of the networks do, on other GPUs."""
    graphs = read_graphs(packaged.table("graphs"))
    mine = gpu_measurements(packaged.table("runs"), graphs, CATALOG)
    networks = mine.take(mine.groups["mode"] != "operators")
    bundle = Bundle.open(PublishedNetworks().packaged().folder, "published_networks")
    theirs = PublishedNetworksProtocols().training_rows(bundle, CATALOG)
    assert not runs_of(theirs) & runs_of(networks)
    again = runs_of(networks.take([0])) & runs_of(networks)
    assert len(again) == 1


def runs_of(rows):
    """Device and graph of each network."""
    return {(query.device.name, query.network.graph.digest) for query in rows.queries}


def test_other_latencies_on_these_gpus_in_the_training_set_are_those_that_the_protocol_names():
    trained = {
        (dataset, setting.device)
        for dataset, settings in bundled().record.counts.items()
        if dataset != "torch_gpu"
        for setting in settings
        if setting.kind in ("network", "kernel")
        and setting.metric in ("latency_ms", "power_w")
        and setting.device in GPUS
    }
    assert trained == {("lambda_bench", GPUS[0])}
