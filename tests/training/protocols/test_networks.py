"""Protocols of networks."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.graph import Operator
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_gpu import gpu_measurements
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.baselines.roofline import Roofline
from forerun.models.networks.host_time import HostTime
from forerun.models.prediction import Predictions
from forerun.training.evaluation.predictions import median_offset, predict_task
from forerun.training.leaderboard.store import shipped
from forerun.training.protocols import TRAINING_PARTS, protocol
from forerun.training.protocols.networks import torch_gpu
from forerun.training.protocols.networks.deepbench import (
    kernel_measurements,
)
from forerun.training.protocols.networks.published_networks import (
    CONTAINER_TORCH,
    MODELLED,
    PublishedNetworksProtocols,
    graph_name,
    left_out,
    long_runs,
    published_measurements,
    torch_version,
)
from forerun.training.protocols.networks.timm_bench import few_models_tasks
from forerun.training.protocols.networks.torch_gpu import (
    TorchGpuProtocols,
    trains,
)
from tests.contracts.tiny_published import (
    TEXTS,
    V100,
    published_graphs,
    published_table,
)
from tests.contracts.tiny_torch_gpu import GPUS
from tests.devices import CATALOG, T4

# Protocols of amd_kernels: no row of a chip that is left out, or of a shape held out, trains.


# Protocols of deepbench: a GPU or an architecture held out, and a folder of one new GPU.


def test_names_and_devices_are_keys_but_not_attributes(made_up):
    rows = kernel_measurements(made_up("deepbench"), CATALOG)
    assert set(rows.groups) == {"device", "generation", "kernel_class"}
    attributes = {name for query in rows.queries for name in query.run.operator.attributes}
    sizes = {"kernel", "stride", "padding", "groups"}
    assert attributes == {"transpose_a", "transpose_b", *sizes}


# published_networks: rows as measurements, and protocols: graph, software, board and task.
#
# A few models of an unseen device in both execution modes: none of their rows is held out.


HUB = {"framework": "pytorch (transformers)", "runtime": "pytorch eager", "precision": "fp32"}


@pytest.fixture(scope="module")
def packaged():
    return Bundle.open(PublishedNetworks().packaged().folder, "published_networks")


@pytest.fixture(scope="module")
def measured(packaged):
    graphs = read_graphs(packaged.table("graphs"))
    return published_measurements(packaged.table("table"), graphs, CATALOG, {*MODELLED, "tensorrt"})


def test_rows_without_a_certain_configuration_are_counted():
    table = published_table({"model": "DLRM"}, {})
    why, names = left_out(table, read_graphs(published_graphs()))
    assert why.tolist() == ["no graph: configuration not certain", ""]
    assert names.tolist() == ["", "resnet50-224"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"model": "EfficientNet-WideSE-B4"}, "efficientnet_widese_b4-380"),
        ({"model": "BERT-large", "sequence_or_image": "128"}, "bert_large_pretraining-128-eager"),
        ({"model": "BERT-large", "table_label": "* SQuAD"}, "bert_large_squad-384-eager"),
        ({**HUB, "variant": "microsoft/resnet-50"}, "resnet50_hf-224"),
        (
            {
                **HUB,
                "variant": "albert/albert-base-v2",
                "phase": "training",
                "sequence_or_image": "256",
                "runtime": "pytorch eager, attention sdpa",
            },
            "albert_base_mlm-256-sdpa",
        ),
        ({**HUB, "variant": "someone/unknown"}, ""),
        ({"framework": "pytorch (detectron2)"}, ""),
    ],
)
def test_the_graph_follows_from_what_the_table_says(row, expected):
    assert graph_name({**TEXTS, **row}) == expected


@pytest.mark.parametrize(
    ("container", "version"),
    [
        ("PyTorch 21.03", "1.9.0"),
        ("pytorch:21.11-py3", "1.11.0"),
        ("torch nightly 2.1.0dev", "2.1.0"),
        ("torch 2.2.0.dev20231023+cu121", "2.2.0"),
        (None, None),
    ],
)
def test_the_version_of_torch_is_that_of_the_container(container, version):
    assert torch_version(container) == version


def test_every_container_of_a_measured_row_is_known(packaged, measured):
    containers = packaged.table("table").iloc[measured[1]]["container"].dropna()
    assert all(torch_version(name) for name in containers)
    assert sorted(CONTAINER_TORCH) == list(CONTAINER_TORCH)


def test_every_packaged_graph_belongs_to_a_row_and_is_at_batch_one(packaged, measured):
    graphs = read_graphs(packaged.table("graphs"))
    assert set(measured[0].groups["graph"]) == set(graphs)
    assert {graph.batch_size for graph in graphs.values()} == {1}
    assert packaged.table("graphs")["operators"].tolist() == [len(g) for g in graphs.values()]


def test_device_time_rows_hardly_wait_for_the_host(packaged):
    rows = long_runs(packaged, CATALOG)
    every = PublishedNetworksProtocols().training_rows(packaged, CATALOG)
    host_s, _ = HostTime().seconds(rows.queries)
    assert (rows.values["latency_ms"] / 1e3 > 2.5 * host_s).all()
    assert 50 < len(rows) < len(every) / 2
    assert {query.network.phase for query in rows.queries} == {"inference", "training"}


def test_a_folder_with_only_a_table_uses_the_packaged_graphs(tmp_path):
    table = published_table({}, {**V100, "model": "EfficientNet-B0"})
    bundle = Bundle.write(tmp_path / "own", "published_networks", {"table": table})
    tasks = list(PublishedNetworksProtocols().evaluation_tasks(bundle, CATALOG, {}))
    assert sum(len(task.held_out) for task in tasks) == 2
    assert {task.name.partition("/")[0] for task in tasks} == {"unseen_device_and_model"}


def test_no_row_is_faster_than_its_roofline_except_for_known_reasons(measured):
    """fp32 on an A100 has TF32 in convolutions, and compiled kernels are fused: both run faster."""
    rows = measured[0]
    groups = rows.groups
    bound_ms = Roofline().predict(rows.queries).values["latency_ms"]
    plain = (groups["runtime"] == "eager") & (
        (groups["chip"] != "a100") | (groups["precision"] != "fp32")
    )
    share = rows.values["latency_ms"] / bound_ms
    # Winograd's algorithm saves arithmetic in fp32: SSD on a V100 trains at 0.97 of its roofline.
    assert share[plain].min() > 0.95
    assert share.min() > 0.45


def test_shipped_scores_are_listed_without_loading_a_bundled_predictor(monkeypatch):
    monkeypatch.setattr(protocol, "bundled", lambda: pytest.fail("loaded"))
    assert shipped()


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


def test_draws_differ_and_are_reproducible():
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


# torch_gpu: tasks by mode and GPU without training rows, and folds that hold out a GPU.


@pytest.fixture
def tasks(made_up):
    found = TorchGpuProtocols().evaluation_tasks(made_up("torch_gpu"), CATALOG, {})
    return {(task.name, task.device): task for task in found}


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


@pytest.fixture(scope="module")
def torch_gpu_packaged():
    return Bundle.open(TorchGpu().packaged().folder, "torch_gpu")


@pytest.fixture(scope="module")
def recorded(torch_gpu_packaged):
    return TorchGpuProtocols().training_rows(torch_gpu_packaged, CATALOG)


@pytest.fixture(scope="module")
def operators(torch_gpu_packaged):
    return TRAINING_PARTS["torch_gpu/operators"].training_rows(torch_gpu_packaged, CATALOG)


def test_training_rows_are_recorded_and_match_their_query(recorded):
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


def test_training_rows_of_operators_match_their_query(operators):
    """A query in fp32 allows TF32 in convolutions; the first rows did not."""
    found = operators
    assert {query.run.kind for query in found.queries} == {"kernel"}
    assert np.isfinite(found.values["latency_ms"]).all()
    conv = np.array([query.run.operator.kind == "conv" for query in found.queries])
    fp32 = found.groups["precision"] == "fp32"
    assert (conv & ~fp32).any()
    assert "strict" not in found.groups["fp32_convolutions"][conv & fp32]
    assert (~conv & fp32).any()


@pytest.mark.slow
def test_rows_of_the_training_set_are_not_evaluated(torch_gpu_packaged, recorded):
    protocols = TorchGpuProtocols()
    seen = {key: recorded.groups[key].tolist() for key in ("device", "model")}
    tasks = list(protocols.evaluation_tasks(torch_gpu_packaged, CATALOG, seen))
    held_out = [task.held_out for task in tasks if task.name.startswith("recorded/")]
    assert held_out
    assert not any(trains(rows).any() for rows in held_out)
    left_out = protocols.left_out(torch_gpu_packaged, CATALOG, seen)
    assert left_out["the training set has this recorded network on this GPU"] == len(recorded)
    powered = {q.network.graph.digest for t in tasks if t.name.startswith("eager/")
               and t.metric == "power_w" for q in t.held_out.queries}  # fmt: skip
    assert not powered & {query.network.graph.digest for query in recorded.queries}


def test_no_row_that_trained_the_released_predictors_is_evaluated(torch_gpu_packaged):
    protocols = TorchGpuProtocols()
    tasks = list(
        protocols.evaluation_tasks(torch_gpu_packaged, CATALOG, bundled().record.seen("torch_gpu"))
    )
    for task in tasks:
        assert not trains(task.held_out).any()
        assert not (task.metric == "power_w" and task.name.startswith("eager/"))
    assert {task.name for task in tasks if "recorded" in task.name}


@pytest.fixture(scope="module")
def torch_gpu_folds(torch_gpu_packaged, recorded):
    """Folds with rows of another dataset, which are the recorded networks on another GPU."""
    names = np.full(len(recorded), "another")
    other = replace(recorded, groups={**recorded.groups, "device": names})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_gpu, "_other_training_rows", lambda predictor, catalog: other)
        return list(TorchGpuProtocols().folds(torch_gpu_packaged, CATALOG))


def test_operators_only_adapts_only_to_operators_of_the_gpu(torch_gpu_folds):
    (fold,) = (fold for fold in torch_gpu_folds if fold.protocol == "operators_only")
    assert {task.name.partition("/")[2] for task in fold.tasks} >= {"recorded_latency"}
    for task in fold.tasks:
        assert {query.workload.kind for query in task.support.pool.queries} == {"kernel"}
        assert {query.device.name for query in task.support.pool.queries} == {task.device}
        assert {query.workload.kind for query in task.held_out.queries} == {"network"}
        assert task.support.shots == len(task.support.pool) > 0
        assert list(task.support.pool.values) == ["latency_ms"]


def test_eager_networks_of_held_out_families_match_their_query(torch_gpu_folds):
    """A query cannot forbid TF32 for convolutions."""
    held = [
        task.held_out for fold in torch_gpu_folds for task in fold.tasks if "/eager_" in task.name
    ]
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


def test_no_row_occurs_among_those_of_published_networks(torch_gpu_packaged):
    """Some of the networks do, on other GPUs."""
    graphs = read_graphs(torch_gpu_packaged.table("graphs"))
    mine = gpu_measurements(torch_gpu_packaged.table("runs"), graphs, CATALOG)
    networks = mine.take(mine.groups["mode"] != "operators")
    bundle = Bundle.open(PublishedNetworks().packaged().folder, "published_networks")
    theirs = PublishedNetworksProtocols().training_rows(bundle, CATALOG)
    assert not runs_of(theirs) & runs_of(networks)
    again = runs_of(networks.take([0])) & runs_of(networks)
    assert len(again) == 1


def runs_of(rows):
    """Device and graph of each network."""
    return {(query.device.name, query.network.graph.digest) for query in rows.queries}


def test_the_protocol_names_all_other_training_latencies_on_these_gpus():
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
