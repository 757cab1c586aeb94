"""published_networks: rows as measurements, and protocols: graph, software, board and task.

A few models of an unseen device in both execution modes: none of their rows is held out.
"""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.published.zoo import read_graphs
from forerun.models.baselines.roofline import Roofline
from forerun.models.networks.host_time import HostTime
from forerun.models.prediction import Predictions
from forerun.training.evaluation.predictions import median_offset
from forerun.training.leaderboard.store import shipped
from forerun.training.protocols import protocol
from forerun.training.protocols.networks.published_networks import (
    CONTAINER_TORCH,
    MODELLED,
    LongRuns,
    PublishedNetworksProtocols,
    graph_name,
    graphs_of,
    left_out,
    published_measurements,
    torch_version,
)
from forerun.training.protocols.networks.timm_bench import few_models_tasks
from tests.contracts.tiny_published import (
    TEXTS,
    V100,
    published_graphs,
    published_rows,
    published_table,
)

CATALOG = DeviceCatalog.load()
HUB = {"framework": "pytorch (transformers)", "runtime": "pytorch eager", "precision": "fp32"}


@pytest.fixture
def bundle(tmp_path):
    tables = {"table": published_rows(), "graphs": published_graphs()}
    return Bundle.write(tmp_path / "published", "published_networks", tables)


@pytest.fixture(scope="module")
def packaged():
    return Bundle.open(PublishedNetworks().packaged().folder, "published_networks")


@pytest.fixture(scope="module")
def measured(packaged):
    graphs = read_graphs(packaged.table("graphs"))
    return published_measurements(packaged.table("table"), graphs, CATALOG, {*MODELLED, "tensorrt"})


def test_rows_become_networks_on_boards_under_software(bundle):
    table, graphs = bundle.table("table"), graphs_of(bundle)
    found, kept = published_measurements(table, graphs, CATALOG)
    assert kept.tolist() == list(range(8))
    query = found.queries[0]
    assert query.device.name == "a100-sxm-80gb"
    assert query.workload.graph == graphs["resnet50-224"]
    assert (query.software.version, query.software.runtime) == ("1.9.0", "eager")
    assert query.software.layout == "nhwc"
    np.testing.assert_allclose(found.values["latency_ms"], 10.0)
    assert set(found.groups) == {
        *("device", "chip", "model", "family", "graph", "host", "runtime", "precision", "phase"),
        *("band", "part", "source"),
    }


def test_what_is_scored_together_names_runtime_phase_precision_and_band(bundle):
    found = published_measurements(bundle.table("table"), graphs_of(bundle), CATALOG)[0]
    assert set(found.groups["part"]) == {
        "eager_inference_amp_1-16",
        "eager_inference_amp_above_16",
    }


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


def test_rows_for_the_time_of_devices_are_those_that_hardly_wait_for_their_host(packaged):
    rows, every = (
        protocols.training_rows(packaged, CATALOG)
        for protocols in (LongRuns(), PublishedNetworksProtocols())
    )
    host_s, _ = HostTime().seconds(rows.queries)
    assert (rows.values["latency_ms"] / 1e3 > 2.5 * host_s).all()
    assert 50 < len(rows) < len(every) / 2
    assert {query.network.phase for query in rows.queries} == {"inference", "training"}


def test_a_folder_with_a_table_alone_takes_the_packaged_graphs(tmp_path):
    table = published_table({}, {**V100, "model": "EfficientNet-B0"})
    bundle = Bundle.write(tmp_path / "own", "published_networks", {"table": table})
    tasks = list(PublishedNetworksProtocols().evaluation_tasks(bundle, CATALOG, {}))
    assert sum(len(task.held_out) for task in tasks) == 2
    assert {task.name.partition("/")[0] for task in tasks} == {"unseen_device_and_model"}


def test_no_row_is_faster_than_its_roofline_but_where_the_reason_is_known(measured):
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
